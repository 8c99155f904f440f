// SPDX-License-Identifier: Apache-2.0
#include "object_store/xml.h"

#include <expat.h>

#include <memory>
#include <utility>

namespace inflight::object_store {
namespace {

constexpr size_t kMaxDepth = 32;

struct Reading {
  XML_Parser parser;
  std::vector<XmlElement> open;  // from the root on
  XmlElement root;
  bool is_refused = false;

  void Refuse() {
    is_refused = true;
    XML_StopParser(parser, XML_FALSE);
  }
};

void Begin(void* user, const XML_Char* name, const XML_Char**) {
  auto& reading = *static_cast<Reading*>(user);
  if (reading.open.size() == kMaxDepth) return reading.Refuse();
  const std::string_view whole(name);
  const size_t colon = whole.rfind(':');
  reading.open.push_back(
      {.name = std::string(colon == std::string_view::npos ? whole : whole.substr(colon + 1)),
       .text = {},
       .children = {}});
}

void End(void* user, const XML_Char*) {
  auto& reading = *static_cast<Reading*>(user);
  if (reading.is_refused) return;
  XmlElement element = std::move(reading.open.back());
  reading.open.pop_back();
  if (reading.open.empty()) {
    reading.root = std::move(element);
  } else {
    reading.open.back().children.push_back(std::move(element));
  }
}

void Text(void* user, const XML_Char* text, int size) {
  auto& reading = *static_cast<Reading*>(user);
  if (!reading.open.empty()) reading.open.back().text.append(text, static_cast<size_t>(size));
}

void RefuseType(void* user, const XML_Char*, const XML_Char*, const XML_Char*, int) {
  static_cast<Reading*>(user)->Refuse();
}

struct FreeParser {
  void operator()(XML_Parser parser) const { XML_ParserFree(parser); }
};

}  // namespace

const XmlElement* XmlElement::Find(std::string_view child) const {
  for (const XmlElement& element : children)
    if (element.name == child) return &element;
  return nullptr;
}

std::string XmlElement::TextOf(std::string_view child) const {
  const XmlElement* const found = Find(child);
  return found == nullptr ? std::string() : found->text;
}

Result<XmlElement> ParseXml(std::string_view text) {
  const std::unique_ptr<XML_ParserStruct, FreeParser> parser(XML_ParserCreate(nullptr));
  if (parser == nullptr) return OutOfMemory("no memory to read XML");
  Reading reading{.parser = parser.get(), .open = {}, .root = {}, .is_refused = false};
  XML_SetUserData(parser.get(), &reading);
  XML_SetElementHandler(parser.get(), Begin, End);
  XML_SetCharacterDataHandler(parser.get(), Text);
  XML_SetStartDoctypeDeclHandler(parser.get(), RefuseType);
  const auto status =
      XML_Parse(parser.get(), text.data(), static_cast<int>(text.size()), /*isFinal=*/XML_TRUE);
  if (reading.is_refused)
    return InvalidArgument("XML that nests deeper than 32 elements or declares a type");
  if (status != XML_STATUS_OK)
    return InvalidArgument(std::string("no XML: ") +
                           XML_ErrorString(XML_GetErrorCode(parser.get())));
  return std::move(reading.root);
}

}  // namespace inflight::object_store
