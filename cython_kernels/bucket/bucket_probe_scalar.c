#include "simd/lanes_scalar.h"

#include "bucket/bucket_probe_template.h"
