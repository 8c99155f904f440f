// SPDX-License-Identifier: Apache-2.0
// What of a request decides its tokens, as members of a JSON object: bounds, ends, words, and the
// sampling parameters by the names of their fields (parameters/parameters.h). Those that have the
// value of a request that says nothing are left out.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "inflight/request.h"
#include "json/json_reader.h"
#include "json/json_writer.h"

namespace inflight::receipts {

// What of a request no receipt covers, by the name of its field; null: it covers all of it.
const char* NotCovered(const Request& request);

// The members of one object, which are to be taken one by one. Errors: kDataLoss names the member,
// and what is around it by `whole`.
class Members {
 public:
  static Result<Members> Of(const json::Value& object, std::string whole);

  bool Has(std::string_view name) const { return members_.contains(name); }
  Result<json::Value> Take(std::string_view name);
  std::optional<json::Value> TakeIfThere(std::string_view name);
  Status Get(std::string_view name, std::string& value);
  Status Get(std::string_view name, int& value);
  Status Get(std::string_view name, int64_t& value);
  Status Get(std::string_view name, bool& value);
  Status Get(std::string_view name, std::vector<TokenId>& ids);
  Status Get(std::string_view name, std::vector<std::vector<TokenId>>& lists);
  // Null stands for none.
  Status Get(std::string_view name, std::optional<bool>& value);
  Status Get(std::string_view name, std::optional<int>& value);
  Status End() const;  // one is left, which nobody knows

 private:
  Status Wrong(std::string_view name, const Status& status) const;

  std::string whole_;
  std::map<std::string, json::Value, std::less<>> members_;
};

// Errors begin with `what`.
Status ReadIdList(const json::Value& from, std::string_view what, std::vector<TokenId>& ids);
void WriteIds(std::span<const TokenId> ids, json::Writer& out);

// The object's members, without the prompt and the adapter.
void WriteRequest(const Request& request, json::Writer& out);
// Those from `members`, to fields of a request that has nothing else.
Status ReadRequest(Members& members, Request& request);

}  // namespace inflight::receipts
