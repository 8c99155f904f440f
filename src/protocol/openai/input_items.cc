// SPDX-License-Identifier: Apache-2.0
// GET /v1/responses/{response}/input_items.
#include "protocol/openai/input_items.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "json/json_reader.h"
#include "json/json_writer.h"
#include "protocol/http_listener/query.h"
#include "protocol/kserve/http/response.h"
#include "protocol/openai/endpoints.h"
#include "protocol/openai/error.h"
#include "protocol/openai/object_reader.h"

namespace inflight::openai {
namespace {

using json::Value;

// Which of the items are asked for.
struct Page {
  size_t limit = 20;
  bool is_descending = true;
  std::optional<std::string> after;  // an id
};

constexpr size_t kMostItems = 100;  // of a page

Result<Page> ReadPage(std::string_view target) {
  Page page;
  RETURN_IF_ERROR(http_listener::ForEachInQuery(
      target, [&](const std::string& name, const std::string& value) -> Status {
        if (name == "limit") {
          const char* const end = value.data() + value.size();
          const auto [rest, error] = std::from_chars(value.data(), end, page.limit);
          if (error == std::errc{} && rest == end && page.limit >= 1 && page.limit <= kMostItems)
            return Status::Ok();
          return InvalidArgument(name, "got '" + Shortened(value) + "', must be in [1, " +
                                           std::to_string(kMostItems) + "]");
        }
        if (name == "order") {
          page.is_descending = value == "desc";
          if (page.is_descending || value == "asc") return Status::Ok();
          return InvalidArgument(name, "got '" + Shortened(value) + "', must be asc or desc");
        }
        if (name == "after") {
          page.after = value;
          return Status::Ok();
        }
        return Unimplemented(Shortened(name),
                             "is not supported: items are told as they came; "
                             "limit, order and after are supported");
      }));
  return page;
}

std::string IdOf(const Value& item) {
  constexpr std::array<std::string_view, 1> kNames = {"id"};
  const auto [id] = item.Pick(kNames);
  if (!id) return "";
  auto text = id->AsString();
  return text.ok() ? *std::move(text) : "";
}

// Of `items`, an array.
Result<std::string> ListOf(const std::string& items, const Page& page) {
  ASSIGN_OR_RETURN(const Value all, Value::Parse(items));
  std::vector<Value> found;
  RETURN_IF_ERROR(all.ForEachElement([&](const Value& item) {
    found.push_back(item);
    return Status::Ok();
  }));
  if (page.is_descending) std::ranges::reverse(found);
  auto first = found.begin();
  if (page.after) {
    first =
        std::ranges::find_if(found, [&](const Value& item) { return IdOf(item) == *page.after; });
    if (first == found.end())
      return InvalidArgument("after", "there is no item '" + Shortened(*page.after) + "'");
    ++first;
  }
  const auto left = static_cast<size_t>(found.end() - first);
  const auto last = first + static_cast<std::ptrdiff_t>(std::min(left, page.limit));
  std::string body;
  json::Writer out(body);
  out.BeginObject().Key("object").String("list").Key("data").BeginArray();
  for (auto item = first; item != last; ++item) out.Raw(item->text());
  out.EndArray().Key("first_id");
  first == last ? out.Null() : out.String(IdOf(*first));
  out.Key("last_id");
  first == last ? out.Null() : out.String(IdOf(*std::prev(last)));
  out.Key("has_more").Bool(last != found.end()).EndObject();
  return body;
}

}  // namespace

Status NoSuchResponse(std::string_view field, const std::string& id) {
  return NotFound(std::string(field) + ": there is no response '" + Shortened(id) +
                  "'; they are kept for a while, for the client that asked for them")
      .WithField(field);
}

std::string ItemsBehind(const StoredResponse& before, std::string_view input) {
  std::string items = "[";
  const auto add = [&items](std::string_view more) {
    if (more.empty()) return;
    if (items.size() > 1) items.push_back(',');
    items.append(more);
  };
  const auto inside = [](std::string_view array) { return array.substr(1, array.size() - 2); };
  if (before.items.size() > 2) add(inside(before.items));
  if (const auto response = Value::Parse(before.response); response.ok()) {
    constexpr std::array<std::string_view, 1> kNames = {"output"};
    if (const auto [output] = response->Pick(kNames); output) add(inside(output->text()));
  }
  add(input);
  items.push_back(']');
  items.shrink_to_fit();
  return items;
}

// NOLINTBEGIN(performance-unnecessary-value-param): endpoints have one signature
void HandleInputItems(const Context& context, const std::string& id,
                      const http_listener::HttpRequest& request,
                      std::shared_ptr<http_listener::HttpResponder> responder) {
  // NOLINTEND(performance-unnecessary-value-param)
  const auto page = ReadPage(request.target);
  if (!page.ok()) return responder->Send(Error(page.status()));
  const auto found = context.responses == nullptr
                         ? nullptr
                         : context.responses->Find(IdentityOf(request.caller), id);
  if (found == nullptr) return responder->Send(Error(NoSuchResponse("response_id", id)));
  auto list = ListOf(found->items, *page);
  if (!list.ok()) return responder->Send(Error(list.status()));
  responder->Send(kserve_http::Answer(200, kserve_http::kJson, *std::move(list)));
}

}  // namespace inflight::openai
