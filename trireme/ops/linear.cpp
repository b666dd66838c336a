#include "trireme/ops/ops.h"
