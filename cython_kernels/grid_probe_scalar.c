#include "lanes_scalar.h"

#include "grid_probe_template.h"
