#include "lanes_scalar.h"

#include "bucket_probe_template.h"
