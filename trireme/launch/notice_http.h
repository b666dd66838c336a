// The wire between the program and libtrireme_http.so (notice.h).
#pragma once

#include <string>

#include "trireme/launch/notice.h"

namespace trireme::launch {

/// GET of http://host[:port]/path (check_notice) with the headers that metadata services ask for; 401 is answered with
/// AWS' token. Errors    none: an address that has not answered within two seconds, or with more than 64 KiB, has
/// status 0 and a problem
using AskNotice = HttpAnswer(const std::string& url);
constexpr const char* kAskNotice = "trireme_ask_notice";

}  // namespace trireme::launch
