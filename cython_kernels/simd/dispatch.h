/* The implementations that this CPU can run, slowest first; they are found once, when the module is loaded. */
#ifndef SJ_DISPATCH_H
#define SJ_DISPATCH_H

#include "scan/band.h"
#include "bucket/bucket_grid.h"
#include "globe/near_places.h"
#include "sums/partner_sums.h"

typedef struct {
    const char *name;
    sj_scan_fill scan_fill;
    sj_grid_fill grid_fill;
    sj_scan_roof scan_roof;
    sj_bucket_fill bucket_fill;
    sj_near_fill near_fill;
    sj_scan_count scan_count;
    sj_grid_count grid_count;
    sj_bucket_count bucket_count;
    void (*fold)(sj_partner_sums *sums);
} sj_implementation;

typedef struct {
    const char *name;
    int present;
} sj_cpu_feature;

/* Of each byte the numbers of the bits that are set, ascending, then zeros. */
extern uint8_t sj_set_bits[256][8];

void sj_dispatch_init(void);
int sj_implementation_count(void);
const sj_implementation *sj_implementation_at(int index);
int sj_cpu_feature_count(void);
const sj_cpu_feature *sj_cpu_feature_at(int index);

#endif
