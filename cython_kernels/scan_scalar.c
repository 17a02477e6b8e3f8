#include "lanes_scalar.h"

#include "scan_template.h"
