// SPDX-License-Identifier: Apache-2.0
#include "grammar/string_formats.h"

#include <algorithm>
#include <iterator>

namespace inflight::grammar {
namespace {

struct FormatEntry {
  std::string_view name;
  std::string_view pattern;
};

// What patterns below have in <>.
constexpr FormatEntry kParts[] = {
    // Days that months have, and the 29th of February of leap years, from the year 1000 on.
    {"<date>",
     R"((?:[1-9]\d{3}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])|)"
     R"((?:0[469]|11)-(?:0[1-9]|[12]\d|30)|02-(?:0[1-9]|1\d|2[0-8]))|)"
     R"((?:[1-9]\d(?:0[48]|[2468][048]|[13579][26])|(?:[2468][048]|[13579][26])00)-02-29))"},
    // Without leap seconds.
    {"<time>",
     R"((?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,6})?(?:Z|[+-](?:[01]\d|2[0-3]):[0-5]\d))"},
    {"<octet>", R"((?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d))"},
    {"<label>", "[A-Za-z0-9]{1,15}(?:-[A-Za-z0-9]{1,15}){0,3}"},
    {"<count>", R"(\d{1,9})"},
    {"<group>", "[0-9a-fA-F]{1,4}"},
    {"<pchar>", "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"},
};

constexpr FormatEntry kFormats[] = {
    {"date", "<date>"},
    {"date-time", "<date>T<time>"},
    {"duration",  // RFC 3339, appendix A
     "P(?:<count>W|(?:<count>Y(?:<count>M(?:<count>D)?)?|<count>M(?:<count>D)?|<count>D)"
     "(?:T(?:<count>H(?:<count>M(?:<count>S)?)?|<count>M(?:<count>S)?|<count>S))?|"
     "T(?:<count>H(?:<count>M(?:<count>S)?)?|<count>M(?:<count>S)?|<count>S))"},
    {"email",  // a local part of words, at the name of a host
     R"([A-Za-z0-9_+-]+(?:\.[A-Za-z0-9_+-]+){0,4}@<label>(?:\.<label>){1,4})"},
    {"hostname", R"(<label>(?:\.<label>){0,3})"},
    {"ipv4", R"(<octet>(?:\.<octet>){3})"},
    {"ipv6",  // eight groups, or fewer around one ::
     "(?:<group>:){7}<group>|::(?:<group>(?::<group>){0,5})?|<group>::(?:<group>(?::<group>){0,4})?"
     "|"
     "(?:<group>:){1}<group>::(?:<group>(?::<group>){0,3})?|"
     "(?:<group>:){2}<group>::(?:<group>(?::<group>){0,2})?|"
     "(?:<group>:){3}<group>::(?:<group>(?::<group>)?)?"},
    {"time", "<time>"},
    {"uri",  // RFC 3986, with an authority
     R"([A-Za-z][A-Za-z0-9+.-]{0,15}://<label>(?:\.<label>){0,4}(?::\d{1,4})?(?:/<pchar>*)*)"
     R"((?:\?(?:<pchar>|[/?])*)?(?:#(?:<pchar>|[/?])*)?)"},
    {"uuid", "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"},
};

}  // namespace

std::string PatternOfFormat(std::string_view name) {
  const auto* known = std::ranges::find(kFormats, name, &FormatEntry::name);
  if (known == std::end(kFormats)) return {};
  std::string pattern(known->pattern);
  for (const FormatEntry& part : kParts) {
    for (size_t at = pattern.find(part.name); at != std::string::npos;
         at = pattern.find(part.name, at)) {
      pattern.replace(at, part.name.size(), part.pattern);
    }
  }
  return pattern;
}

std::string FormatNames() {
  std::string names;
  for (const FormatEntry& format : kFormats) {
    if (!names.empty()) names += ", ";
    names += format.name;
  }
  return names;
}

}  // namespace inflight::grammar
