// Memory that is to be there before it is used.
#pragma once

#include <cstddef>

namespace trireme::base {

/// Makes the kernel give all pages of [begin, begin + bytes), and keeps their contents. `begin` lies at a page's start.
/// Returns 0, or the error's number: ENOMEM where there is not so much memory.
///
/// Cost      reads the range where the kernel is older than Linux 5.14
int populate(std::byte* begin, std::size_t bytes);

}  // namespace trireme::base
