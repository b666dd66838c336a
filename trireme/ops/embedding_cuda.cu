#include "trireme/ops/cuda-inl.h"
