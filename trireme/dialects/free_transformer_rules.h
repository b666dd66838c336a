// What free-transformer's keys mean together (free_transformer.cpp has the table).
#pragma once

#include "trireme/dialects/reading.h"

namespace trireme::dialects {

void finish_free_transformer(Reading& reading);

}  // namespace trireme::dialects
