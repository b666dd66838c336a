// The compiled half of the fmt that LibTorch's headers bring: version 12 in LibTorch 2.11. What fmt's own build
// compiles besides its functions are instances of its templates; these are those that our files ask for.
#include <fmt/format-inl.h>

FMT_BEGIN_NAMESPACE
namespace detail {
template dragonbox::decimal_fp<float> dragonbox::to_decimal(float) noexcept;
template dragonbox::decimal_fp<double> dragonbox::to_decimal(double) noexcept;
template thousands_sep_result<char> thousands_sep_impl(locale_ref);
template char decimal_point_impl(locale_ref);
template void buffer<char>::append(const char*, const char*);
}  // namespace detail
FMT_END_NAMESPACE
