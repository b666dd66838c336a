#include "trireme/ops/cuda_functions.h"
