#include "simd/lanes_scalar.h"

#include "scan/scan_template.h"
