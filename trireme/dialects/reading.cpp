#include "trireme/dialects/reading.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/base/units.h"
#include "trireme/config/hints.h"

namespace trireme::dialects {

using config::Given;

namespace {

/// Why a value of a refused key asks for nothing; empty: it asks for something.
std::string_view nothing_asked(const Row& row, const Given& entry) {
  constexpr std::string_view kNothing[] = {"", "false", "0", "none", "no", "[]", "0.0"};
  const std::string text = lower(entry.text);
  const auto number = base::parse_number(text);  // 1.00 and 1e0 are 1.0
  const auto is_it = [&](std::string_view word) {
    return text == lower(word) || (number && number == base::parse_number(word));
  };
  if (std::ranges::any_of(kNothing, is_it)) return "it is off";
  return std::ranges::any_of(row.off, is_it) ? "that is so here, too" : "";
}

// JSON has no comments, so people write them as "_comment".
bool is_comment(std::string_view key) { return key.starts_with('_') || key.find("._") != std::string_view::npos; }

constexpr std::string_view name_of(Takes takes) {
  switch (takes) {
    case Takes::anything:
      return "a value";
    case Takes::flag:
      return "true or false";
    case Takes::count:
      return "a whole number";
    case Takes::number:
      return "a number";
    case Takes::text:
      return "a text";
    case Takes::numbers:
      return "a list of numbers";
  }
  return "a value";
}

}  // namespace

const Row* find_row(const Dialect& dialect, std::string_view key) {
  for (const Row& row : dialect.rows) {
    if (row.key == key) return &row;
    if (!row.key.ends_with(".*")) continue;
    const std::string_view map = row.key.substr(0, row.key.size() - 2);
    if (key.starts_with(map) && (key.size() == map.size() || key[map.size()] == '.')) return &row;
  }
  return nullptr;
}

Reading::Reading(const Dialect& dialect, const config::ForeignFile& file, const config::Table& table,
                 const config::Parsed& parsed, std::string_view command, const Surroundings& surroundings,
                 config::Problems& problems)
    : dialect_(dialect),
      file_(file),
      table_(table),
      parsed_(parsed),
      command_(command),
      surroundings_(surroundings),
      problems_(problems) {
  result_.files = file.others;
  // Of a word that is typed twice, the last counts. A class and an empty init_args of it have one key here.
  for (const Given& entry : file.entries)
    if (const Given*& at = entries_[entry.key]; at == nullptr || !is_empty_in_file(entry)) at = &entry;
}

config::ForeignSettings Reading::run() {
  if (dialect_.begin != nullptr) dialect_.begin(*this);
  if (!is_refused_.empty()) return std::move(result_);
  for (const Given& entry : file_.entries) translate(entry);
  if (dialect_.finish != nullptr) dialect_.finish(*this);
  refuse_settings_given_twice();
  for (const Given& entry : file_.entries) {
    const auto found = accounts_.find(&entry);
    // After a refusal, what depends on the refused key has nothing to say.
    check_invariant(found != accounts_.end() || !is_refused_.empty(),
                    fmt::format("the dialect {} accounts for {}", dialect_.name, entry.key));
    if (found != accounts_.end()) result_.accounts.push_back(found->second);
  }
  return std::move(result_);
}

// Two keys of a file that mean one setting, with two values.
void Reading::refuse_settings_given_twice() {
  if (!is_file() || !dialect_.one_value_each) return;
  const auto same = [](const std::string& a, const std::string& b) {
    const auto one = base::parse_number(a), other = base::parse_number(b);
    return a == b || (one && one == other);
  };
  const std::vector<Given>& all = result_.settings;
  for (size_t i = 0; i < all.size(); ++i)
    for (size_t k = 0; k < i; ++k)
      if (all[i].key == all[k].key && !same(all[i].text, all[k].text) &&
          (all[i].source.place != all[k].source.place || all[i].source.text != all[k].source.text))
        problems_.add(
            fmt::format("{} is set twice in {}: to {} and to {}", all[i].key, file_.name, all[k].text, all[i].text),
            {all[k].source, all[i].source}, "keep one of the two lines");
}

bool Reading::is_empty_in_file(const Given& entry) const {
  return is_file() && (entry.kind == Given::Kind::section || entry.kind == Given::Kind::null);
}

void Reading::translate(const Given& entry) {
  if (const Given* last = entries_[entry.key]; last != &entry) {
    if (is_empty_in_file(entry)) return ignore(entry, "it is empty");
    if (!is_file()) return ignore(entry, "it is given again later");
    return refuse_both(entry, *last, fmt::format("{} is set twice in {}", entry.key, file_.name),
                       "keep one of the two lines");
  }
  const Row* row = find_row(dialect_, entry.key);
  if (row == nullptr) {
    if (dialect_.is_json && is_comment(entry.key)) return ignore(entry, "it begins with _, so it is a comment");
    const std::string below = entry.key + ".";
    const bool is_map = !(dialect_.takes_native_keys && table_.find(entry.key) != nullptr) &&
                        std::ranges::any_of(dialect_.rows, [&](const Row& one) { return one.key.starts_with(below); });
    if (entry.kind == Given::Kind::section || (entry.kind == Given::Kind::null && is_map))
      return ignore(entry, "it is empty");
    Given native = entry;
    table_.translate(native);
    if (dialect_.takes_native_keys && table_.find(native.key) != nullptr) {
      native.source = entry.source;
      return keep(native, entry);
    }
    return refuse_unknown(entry);
  }
  if (entry.kind == Given::Kind::section) return ignore(entry, "it is empty");
  if (entry.kind == Given::Kind::null) return ignore(entry, fmt::format("null is {}'s default", dialect_.system));
  if (is_left_out(entry)) return ignore(entry, "it is empty");
  if (is_auto(entry) && !row->automatic.empty()) return account(entry, false, row->automatic);
  if (is_auto(entry) && dialect_.drops_auto != nullptr && dialect_.drops_auto(entry.key))
    return ignore(entry, fmt::format("{} drops auto, so its default counts", dialect_.system));
  if (is_auto(entry) && row->ignored.empty() && row->setting.empty())
    return refuse(entry, fmt::format("{} takes no auto for {}", dialect_.system, entry.key), "give a value");
  if (!has_right_type(*row, entry)) return;
  if (!row->refused.empty() || !row->open.empty()) {
    if (const std::string_view why = nothing_asked(*row, entry); !why.empty()) return ignore(entry, why);
    if (row->key.ends_with(".*") && is_told_of(row->key.substr(0, row->key.size() - 1), entry)) return;
    return row->open.empty() ? refuse(entry, fmt::format("{} {} cannot be had", entry.key, entry.text), row->refused)
                             : refuse_open(entry, row->open);
  }
  if (row->by != nullptr) return row->by(*this, entry);
  if (!row->ignored.empty()) return ignore(entry, row->ignored);
  if (row->setting.empty()) return;  // `finish` translates it
  Given given = entry;
  for (const auto& [theirs, ours] : row->words)
    if (lower(theirs) == lower(given.text)) given.text = ours;
  if (row->adapt != nullptr) row->adapt(given);
  if (row->takes == Takes::count)
    if (const auto number = base::parse_count(given.text)) given.text = std::to_string(*number);  // 5e8
  given.key = row->setting;
  keep(given, entry);
}

// A setting that one key alone says; in a file of names that are Trireme's too, another key may say it as well.
void Reading::keep(const Given& given, const Given& entry) {
  if (dialect_.takes_native_keys && is_file())
    for (const Given& before : result_.settings)
      if (before.key == given.key) {
        is_refused_[&entry] = true;
        return problems_.add(fmt::format("{} is set twice in {}", given.key, file_.name), {before.source, given.source},
                             "keep one of the two lines");
      }
  result_.settings.push_back(given);
  account(entry, false, fmt::format("{} {}", given.key, given.text));
}

bool Reading::has_right_type(const Row& row, const Given& entry) {
  const bool is_list = entry.kind == Given::Kind::list;
  const auto all_numbers = [&] {
    return std::ranges::all_of(entry.items,
                               [](const std::string& item) { return base::parse_number(item).has_value(); });
  };
  const bool fits = row.takes == Takes::anything ? true
                    : row.takes == Takes::flag   ? !is_list && is_flag_text(entry)
                    : row.takes == Takes::count ? !is_list && !entry.quoted && base::parse_count(entry.text).has_value()
                    : row.takes == Takes::number  ? !is_list && base::parse_number(entry.text).has_value()
                    : row.takes == Takes::numbers ? is_list && all_numbers()
                                                  : !is_list;
  if (fits) return true;
  const bool is_quoted = entry.quoted && base::parse_number(entry.text).has_value();
  refuse(entry,
         is_quoted ? fmt::format("{} wants {}, not the text \"{}\"", entry.key, name_of(row.takes), entry.text)
                   : fmt::format("{} wants {}, not {}", entry.key, name_of(row.takes), entry.text),
         is_quoted        ? "leave out the quotes"
         : is_auto(entry) ? fmt::format("{} takes no auto here", dialect_.system)
                          : "");
  return false;
}

// Of a map of which nothing is taken, the first key is told.
bool Reading::is_told_of(std::string_view map, const Given& entry) {
  const bool is_told = std::ranges::any_of(
      is_refused_, [&](const auto& refused) { return refused.first != &entry && refused.first->key.starts_with(map); });
  if (is_told) is_refused_[&entry] = true;
  return is_told;
}

void Reading::refuse_unknown(const Given& entry) {
  if (dialect_.takes_native_keys) {
    const auto why = config::refusal_of(table_, entry.key);
    return refuse(entry, why ? entry.key + " is not available" : "unknown setting " + entry.key,
                  why.value_or(config::hint_for(table_, entry.key, command_)));
  }
  const std::string_view top = std::string_view(entry.key).substr(0, entry.key.find('.') + 1);
  const auto is_in = [&](const Row& row) { return row.key.starts_with(top); };
  if (!top.empty() && std::ranges::none_of(dialect_.rows, is_in) && is_told_of(top, entry)) return;
  // Keys of one map share their first letters, so the last parts are compared.
  const auto split = [](std::string_view key) {
    const size_t leaf = key.rfind('.') + 1;  // 0 without a dot
    return std::pair{std::string(key.substr(0, leaf)), std::string(key.substr(leaf))};
  };
  const auto [map, leaf] = split(entry.key);
  std::vector<std::string> beside, elsewhere;
  for (const Row& row : dialect_.rows) {
    const auto [other_map, other_leaf] = split(row.key);
    if (other_map == map) beside.push_back(other_leaf);
    if (other_leaf == leaf) elsewhere.emplace_back(row.key);
  }
  std::string hint;
  std::vector<std::string> maps;
  for (const Row& row : dialect_.rows)
    if (const size_t end = row.key.find('.'); end != std::string_view::npos) maps.emplace_back(row.key.substr(0, end));
  if (const auto near = base::nearest(top.substr(0, top.empty() ? 0 : top.size() - 1), maps);
      near && std::ranges::none_of(dialect_.rows, is_in))
    hint = fmt::format("the nearest is {}", *near);
  if (const auto near = base::nearest(leaf, beside)) hint = fmt::format("the nearest is {}{}", map, *near);
  if (elsewhere.size() == 1) hint = fmt::format("there is {}", elsewhere[0]);  // the right name in the wrong place
  if (hint.empty())
    hint = fmt::format(
        "docs/dialects.md lists what {} has; Trireme's own settings stand in a file of their own, with "
        "another --config",
        dialect_.system);
  refuse(entry, fmt::format("{} has no key {}", dialect_.system, entry.key), hint);
}

void Reading::set(std::string_view setting, std::string_view value, const Given& entry) {
  result_.settings.push_back({.key = std::string(setting), .text = std::string(value), .source = entry.source});
  account(entry, false, fmt::format("{} {}", setting, value));
}

void Reading::suggest(std::string_view setting, std::string_view value) {
  if (is_given(setting)) return;
  const config::Source source{config::Source::Kind::file, fmt::format("{}: {}'s default", file_.name, dialect_.system),
                              ""};
  result_.defaults.push_back({.key = std::string(setting), .text = std::string(value), .source = source});
}

void Reading::account(const Given& entry, bool is_ignored, std::string_view text) {
  const auto [at, fresh] = accounts_.try_emplace(&entry, config::Account{entry.source, entry.key, is_ignored, ""});
  at->second.is_ignored = is_ignored;
  at->second.text += fresh || at->second.text.empty() ? std::string(text) : fmt::format(", {}", text);
}

void Reading::ignore(const Given& entry, std::string_view because) { account(entry, true, because); }

void Reading::take_back(const Given& entry, std::string_view setting) {
  std::erase_if(result_.settings, [&](const Given& given) { return given.key == setting; });
  accounts_.erase(&entry);
}

void Reading::tell(const Given& entry, std::string_view what) { account(entry, false, what); }

void Reading::ignore_rest(std::string_view because) {
  for (const Given& entry : file_.entries)
    if (!is_settled(entry)) ignore(entry, because);
}

void Reading::refuse(const Given& entry, std::string_view headline, std::string_view hint) {
  is_refused_[&entry] = true;
  problems_.add(headline, {entry.source}, hint);
}

void Reading::refuse_open(const Given& entry, std::string_view what) {
  refuse(entry, fmt::format("{} {} is not built yet", entry.key, entry.text), what);
}

void Reading::refuse_file(std::string_view headline, std::string_view hint) {
  if (!file_.entries.empty()) return refuse(file_.entries.front(), headline, hint);
  problems_.add(headline, {}, hint);
}

void Reading::refuse_both(const Given& one, const Given& other, std::string_view headline, std::string_view hint) {
  is_refused_[&one] = is_refused_[&other] = true;
  problems_.add(headline, {one.source, other.source}, hint);
}

void Reading::include(const Dialect& dialect, const config::ForeignFile& file) {
  if (file.name == file_.name || std::ranges::find(around_, file.name) != around_.end()) {
    problems_.add(fmt::format("{} includes itself", file.name), {}, "leave out the key that names it");
    return;
  }
  config::ForeignFile at_this_place = file;
  at_this_place.later = file_.later;
  Reading inner(dialect, at_this_place, table_, parsed_, command_, surroundings_, problems_);
  inner.result_.settings = result_.settings;  // what is known so far
  inner.around_ = around_;
  inner.around_.push_back(file_.name);
  const size_t known = result_.settings.size();
  config::ForeignSettings found = inner.run();
  result_.settings.insert(result_.settings.end(), found.settings.begin() + static_cast<std::ptrdiff_t>(known),
                          found.settings.end());
  result_.defaults.insert(result_.defaults.end(), found.defaults.begin(), found.defaults.end());
  result_.accounts.insert(result_.accounts.end(), found.accounts.begin(), found.accounts.end());
  result_.files.insert(result_.files.end(), found.files.begin(), found.files.end());
}

void Reading::forget_defaults_but(std::initializer_list<std::string_view> settings) {
  std::erase_if(result_.defaults, [&](const Given& given) {
    return std::ranges::find(settings, std::string_view(given.key)) == settings.end();
  });
}

}  // namespace trireme::dialects
