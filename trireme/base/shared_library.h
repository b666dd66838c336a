// Parts of the program that lie in libraries of their own, because only some machines can load them.
#pragma once

#include <filesystem>
#include <string>

namespace trireme::base {

/// Where `library` lies: beside the program (a build folder), in ../lib (an installed tree), else its name alone, for
/// the loader to look for.
std::filesystem::path library_path(const std::string& library);

}  // namespace trireme::base
