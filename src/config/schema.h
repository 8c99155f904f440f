// SPDX-License-Identifier: Apache-2.0
// One schema per command makes its flags, its file keys, its help and its page in
// docs/configuration.md.
//
//   Schema<ServeOptions> schema;
//   schema.Section("HTTP");
//   schema.Add("http_port", [](ServeOptions& o) -> auto& { return o.http.port; },
//              "Port of the HTTP listener.", Range(0, 65535));
//
// An option is called `http_port` in files and `--http-port` on the command line. Its default is
// the value that a default-constructed struct holds. Values are text from outside: every parse and
// range error names the option, the value and what is allowed.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status_macros.h"
#include "inflight/status.h"

namespace inflight::config {

// What an option accepts beyond its type. Bounds are inclusive unless it says otherwise.
struct Constraint {
  std::optional<double> min;
  std::optional<double> max;
  std::vector<std::string> choices;
  bool is_switch = false;          // boolean flags: may stand without a value and mean true then
  bool is_value_optional = false;  // the same for flags that often have one ("--x", "--x enable");
                                   // only in commands without positional arguments
  bool excludes_min = false;
};
inline Constraint Range(double min, double max) { return {.min = min, .max = max, .choices = {}}; }
inline Constraint AtLeast(double min) { return {.min = min, .max = {}, .choices = {}}; }
inline Constraint OneOf(std::vector<std::string> choices) {
  return {.min = {}, .max = {}, .choices = std::move(choices)};
}

inline Constraint Switch() { return {.min = {}, .max = {}, .choices = {}, .is_switch = true}; }
inline Constraint OptionalValue() {
  return {.min = {}, .max = {}, .choices = {}, .is_value_optional = true};
}

// What help, documents and parsers need to know of an option.
struct OptionInfo {
  std::string name;  // "http_port"
  std::string section;
  std::string type;          // "integer", "number", "boolean", "text", "list of text"
  std::string default_text;  // "" when unset
  std::string help;
  Constraint constraint;
  bool repeatable = false;
  bool supported = true;      // false: known from upstream, refused with `help` as the reason
  std::string accepted_only;  // unsupported options: the one value that is accepted because it asks
                              // for nothing
  bool has_effect = true;     // false: accepted from upstream, `help` says why nothing follows
  std::vector<std::string> aliases;  // further flags, with their dashes
  bool is_common = false;            // of those that --help shows of a command that has many

  std::string flag() const;  // "--http-port"
  // In help, manual pages and completion.
  bool is_shown() const { return supported && has_effect; }
};

// An option that was given and changes nothing.
struct WithoutEffect {
  std::string flag;
  std::string value;
  std::string reason;
};
void Warn(const WithoutEffect& option);

std::string FlagOf(std::string_view name);  // "http_port" -> "--http-port"

// The declared name nearest to `name` in edit distance, if near enough to be meant. None for names
// of more than 64 bytes: what takes long to compare is no slip of a finger.
std::optional<std::string> Nearest(std::string_view name, const std::vector<std::string>& known);

namespace internal {

Status ParseValue(const OptionInfo& info, std::string_view text, bool& out);
Status ParseValue(const OptionInfo& info, std::string_view text, int64_t& out);
Status ParseValue(const OptionInfo& info, std::string_view text, double& out);
Status ParseValue(const OptionInfo& info, std::string_view text, std::string& out);

// Whether a refused option's value is `accepted_only`: the same word, or the same switch position
// in other words ("disable", "false", "off", "0").
bool AsksForNothing(const OptionInfo& info, std::string_view text);

std::string ToText(bool value);
std::string ToText(int64_t value);
std::string ToText(double value);
std::string ToText(const std::string& value);

template <typename T>
struct IsOptional : std::false_type {};
template <typename T>
struct IsOptional<std::optional<T>> : std::true_type {
  using Inner = T;
};

template <typename T>
constexpr const char* TypeName() {
  if constexpr (IsOptional<T>::value)
    return TypeName<typename IsOptional<T>::Inner>();
  else if constexpr (std::same_as<T, bool>)
    return "boolean";
  else if constexpr (std::integral<T> || std::same_as<T, std::chrono::milliseconds>)
    return "integer";
  else if constexpr (std::floating_point<T>)
    return "number";
  else if constexpr (std::same_as<T, std::vector<std::string>>)
    return "list of text";
  else
    return "text";
}

template <typename T>
std::string DefaultText(const T& value) {
  if constexpr (IsOptional<T>::value)
    return value ? DefaultText(*value) : std::string();
  else if constexpr (std::same_as<T, std::vector<std::string>> || std::is_enum_v<T>)
    return {};
  else if constexpr (std::same_as<T, std::filesystem::path>)
    return value.string();
  else if constexpr (std::same_as<T, std::chrono::milliseconds>)
    return ToText(static_cast<int64_t>(value.count()));
  else if constexpr (std::integral<T> && !std::same_as<T, bool>)
    return ToText(static_cast<int64_t>(value));
  else if constexpr (std::floating_point<T>)
    return ToText(static_cast<double>(value));
  else
    return ToText(value);
}

template <typename T>
Status Parse(const OptionInfo& info, std::string_view text, T& out) {
  if constexpr (IsOptional<T>::value) {
    typename IsOptional<T>::Inner value{};
    RETURN_IF_ERROR(Parse(info, text, value));
    out = std::move(value);
    return Status::Ok();
  } else if constexpr (std::same_as<T, std::vector<std::string>>) {
    std::string value;
    RETURN_IF_ERROR(ParseValue(info, text, value));
    out.push_back(std::move(value));
    return Status::Ok();
  } else if constexpr (std::same_as<T, std::filesystem::path>) {
    std::string value;
    RETURN_IF_ERROR(ParseValue(info, text, value));
    out = value;
    return Status::Ok();
  } else if constexpr (std::same_as<T, std::chrono::milliseconds>) {
    int64_t value = 0;
    RETURN_IF_ERROR(ParseValue(info, text, value));
    out = T(value);
    return Status::Ok();
  } else if constexpr (std::is_enum_v<T>) {
    std::string value;
    RETURN_IF_ERROR(ParseValue(info, text, value));  // one of the choices
    const auto& choices = info.constraint.choices;
    const auto found = std::find(choices.begin(), choices.end(), value);
    out = static_cast<T>(found - choices.begin());
    return Status::Ok();
  } else if constexpr (std::integral<T> && !std::same_as<T, bool>) {
    OptionInfo bounded = info;
    bounded.constraint.min = std::max(info.constraint.min.value_or(-9e18),
                                      static_cast<double>(std::numeric_limits<T>::min()));
    bounded.constraint.max = std::min(info.constraint.max.value_or(9e18),
                                      static_cast<double>(std::numeric_limits<T>::max()));
    int64_t value = 0;
    RETURN_IF_ERROR(ParseValue(bounded, text, value));
    out = static_cast<T>(value);
    return Status::Ok();
  } else if constexpr (std::floating_point<T>) {
    double value = 0;
    RETURN_IF_ERROR(ParseValue(info, text, value));
    out = static_cast<T>(value);
    return Status::Ok();
  } else {
    return ParseValue(info, text, out);
  }
}

// What is done with the values of one type, whatever struct they are in.
struct ValueType {
  const char* name;  // "integer"
  bool repeatable;
  std::string (*text)(const OptionInfo& info, const void* value);
  Status (*parse)(const OptionInfo& info, std::string_view text, void* out);
  Status (*check)(const OptionInfo& info, std::string_view text);  // as `parse`, and keeps nothing
  void (*assign)(const void* from, void* to);
};

template <typename T>
inline constexpr ValueType kValueType = {
    .name = TypeName<T>(),
    .repeatable = std::same_as<T, std::vector<std::string>>,
    .text = [](const OptionInfo& info, const void* value) -> std::string {
      const T& typed = *static_cast<const T*>(value);
      if constexpr (std::is_enum_v<T>)
        return info.constraint.choices.at(static_cast<size_t>(typed));
      else
        return DefaultText(typed);
    },
    .parse = [](const OptionInfo& info, std::string_view text, void* out) -> Status {
      return Parse(info, text, *static_cast<T*>(out));
    },
    .check = [](const OptionInfo& info, std::string_view text) -> Status {
      T value{};
      return Parse(info, text, value);
    },
    .assign = [](const void* from,
                 void* to) { *static_cast<T*>(to) = *static_cast<const T*>(from); },
};

// Where a value is in a struct, without the types of both: a function that captures little.
class Place {
 public:
  template <typename Options, typename Access>
  static Place Of(Access access) {
    static_assert(std::is_trivially_copyable_v<Access> && sizeof(Access) <= sizeof(access_));
    Place place;
    std::memcpy(place.access_.data(), &access, sizeof(access));
    place.find_ = [](const std::byte* bytes, void* options) -> void* {
      return &(*reinterpret_cast<const Access*>(bytes))(*static_cast<Options*>(options));
    };
    return place;
  }
  explicit operator bool() const { return find_ != nullptr; }
  void* In(void* options) const { return find_(access_.data(), options); }

 private:
  alignas(std::max_align_t) std::array<std::byte, 32> access_{};
  void* (*find_)(const std::byte* access, void* options) = nullptr;
};

}  // namespace internal

// All of a schema that is the same for every struct of options.
class UntypedSchema {
 public:
  // Options added from here on belong to this section of help and documents.
  void Section(std::string title) { section_ = std::move(title); }

  // An option that upstream has and that is not supported: refused with the reason, unless its
  // value is `accepted_only`.
  void Refuse(std::string_view name, std::string_view reason, std::string_view accepted_only = {},
              const Constraint& constraint = {});

  // Another name for an option declared before, honoured in flags and files. One that begins with a
  // dash ("-tp") is a flag as it stands.
  void Alias(std::string alias, std::string name);

  // Those of the options declared before that --help shows; --help-all shows all.
  void Common(const std::vector<std::string_view>& names);

  // The option that Set would set by `name`; null where it is unknown. Of this schema.
  const OptionInfo* InfoOf(std::string_view name) const;

  std::vector<OptionInfo> options() const;
  const std::vector<std::pair<std::string, std::string>>& aliases() const { return aliases_; }

 protected:
  // `place` is where the option's value is; `initial` is the value that it has by itself.
  void AddValue(std::string_view name, const internal::Place& place,
                const internal::ValueType& type, const void* initial, std::string_view help,
                const Constraint& constraint);
  // `kept` is where a std::vector<WithoutEffect> is; none: the warning is logged.
  void AddNote(std::string_view name, const internal::Place& kept, const internal::ValueType& type,
               std::string_view reason, const Constraint& constraint);
  Status SetIn(void* options, std::string_view name, std::string_view text) const;
  Status ResetIn(void* options, void* defaults, std::string_view name) const;

 private:
  struct Entry {
    OptionInfo info;
    const internal::ValueType* type = nullptr;  // null: it is refused
    internal::Place place;                      // of its value, or of what is kept of a note
  };

  Entry& Push(std::string_view name, std::string_view help, const Constraint& constraint);
  std::string KeyOf(std::string_view name) const;
  const Entry* Find(const std::string& key) const;
  Status Unknown(std::string_view name, const std::string& key) const;

  std::string section_ = "Options";
  std::vector<Entry> entries_;
  std::vector<std::pair<std::string, std::string>> aliases_;
};

template <typename Options>
class Schema : public UntypedSchema {
 public:
  // `access` maps Options& to the member: bool, integers, floating point, std::string,
  // std::optional of these, a vector of strings (repeatable), or an enum whose values 0, 1, ... the
  // constraint's choices name in order.
  template <typename Access>
  void Add(std::string_view name, Access access, std::string_view help,
           const Constraint& constraint = {}) {
    using T = std::remove_cvref_t<decltype(access(*defaults_))>;
    AddValue(name, internal::Place::Of<Options>(access), internal::kValueType<T>,
             &access(*defaults_), help, constraint);
  }

  // An option of upstream's that changes nothing here, because it steers machinery that does not
  // exist. Its values have to be of type T and within `constraint` all the same. Each that is given
  // is said as a warning with the reason: at once, or by whoever reads `kept`.
  template <typename T = std::string>
  void Note(std::string_view name, std::string_view reason,
            const Constraint& constraint = OptionalValue(),
            std::vector<WithoutEffect> Options::*kept = nullptr) {
    internal::Place place;
    if (kept != nullptr)
      place = internal::Place::Of<Options>([kept](Options& o) -> auto& { return o.*kept; });
    AddNote(name, place, internal::kValueType<T>, reason, constraint);
  }

  // Sets one option from text, by file key or by flag without its dashes. An unknown name suggests
  // the nearest one.
  Status Set(Options& options, std::string_view name, std::string_view text) const {
    return SetIn(&options, name, text);
  }

  // Gives one option the value again that it has where nobody sets it. An unknown name as of Set.
  Status Reset(Options& options, std::string_view name) const {
    return ResetIn(&options, defaults_.get(), name);
  }

 private:
  std::shared_ptr<Options> defaults_ = std::make_shared<Options>();  // never changed
};

// "default 8000; 0 to 65535; also -p": what manuals say of an option beside its meaning.
std::string Details(const OptionInfo& info);

// What stands for the option's value in manuals: TEXT, INT, NUM or BOOL.
std::string ValueWord(const OptionInfo& info);

// Rows of a Markdown table for docs/configuration.md, a table per section.
std::string ToMarkdown(const std::vector<OptionInfo>& options);

// The same for --help: flag, type, default, help, in lines of at most 100 columns; unsupported
// options are left out. `only_common`: the others too, and sections.
std::string ToHelp(const std::vector<OptionInfo>& options, bool only_common = false);

// `text` in lines of at most `columns`, broken at blanks alone; each but the first begins with
// `indent` blanks, and the first has `indent` columns less, for what stands before it.
std::string Wrapped(std::string_view text, size_t columns, size_t indent);

// Key and value texts of a JSON object in a file, for Schema::Set in order; arrays give an entry
// per element. kInvalidArgument names the file, the key and what is allowed.
Result<std::vector<std::pair<std::string, std::string>>> ReadOptionFile(const std::string& path);

}  // namespace inflight::config
