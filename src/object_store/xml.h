// SPDX-License-Identifier: Apache-2.0
// The small XML documents of S3, its token service and Azure: listings, errors, tokens. Read by
// expat; documents with a type declaration are refused, so that nothing is expanded or fetched.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "inflight/status.h"

namespace inflight::object_store {

struct XmlElement {
  std::string name;  // without its namespace's prefix
  std::string text;  // all of it, in one
  std::vector<XmlElement> children;

  const XmlElement* Find(std::string_view child) const;  // the first; null: none
  std::string TextOf(std::string_view child) const;      // empty without
};

// The root. kInvalidArgument where the text is no XML, or nests deeper than 32 elements.
Result<XmlElement> ParseXml(std::string_view text);

}  // namespace inflight::object_store
