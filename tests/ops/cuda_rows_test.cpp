#include "cuda_support.h"
