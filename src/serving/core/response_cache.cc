// SPDX-License-Identifier: Apache-2.0
#include "serving/core/response_cache.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <type_traits>
#include <utility>

#include "base/status_macros.h"

namespace inflight::serving {
namespace {

constexpr uint64_t kEntryBytes = 256;  // about what lists and tables take beside the contents

// With its length in front, so that neighbours cannot be mistaken for each other.
void AppendSized(std::string_view bytes, std::string& key) {
  key.append(std::to_string(bytes.size())).append(":").append(bytes);
}

void AppendNumber(uint64_t number, std::string& key) {
  key.append(std::to_string(number)).append(";");
}

// Numbers by their bits: of a double no text is exact.
void AppendValue(const ParameterValue& value, std::string& key) {
  AppendNumber(value.index(), key);
  const auto append = [&key](const auto& held) {
    if constexpr (std::is_same_v<std::decay_t<decltype(held)>, std::string>) {
      AppendSized(held, key);
    } else {
      key.append(reinterpret_cast<const char*>(&held), sizeof(held));
    }
  };
  std::visit(append, value);
}

std::string_view BytesOf(const Tensor& tensor) {
  return {reinterpret_cast<const char*>(tensor.data.data()), tensor.data.size()};
}

void AppendInput(const Tensor& input, std::string& key) {
  AppendSized(input.name, key);
  AppendSized(DataTypeName(input.datatype), key);
  for (const int64_t dim : input.shape) key.append(std::to_string(dim)).append(",");
  AppendSized(BytesOf(input), key);
}

Tensor CopyOf(const Tensor& tensor) {
  return Tensor::FromBytes(tensor.name, tensor.datatype, tensor.shape,
                           std::string(BytesOf(tensor)));
}

Result<uint64_t> ParseSize(const std::string& word, std::string_view text) {
  uint64_t size = 0;
  const auto [at, error] = std::from_chars(text.data(), text.data() + text.size(), size);
  if (error == std::errc() && at == text.data() + text.size() && size > 0) return size;
  return InvalidArgument("--cache-config: got '" + word +
                         "', expected local,size=<bytes>, a number from 1 on");
}

}  // namespace

std::string ResponseCache::NewPrefix() {
  const std::lock_guard lock(mutex_);
  return std::to_string(num_prefixes_++) + ";";
}

std::string ResponseCache::KeyOf(const std::string& prefix, const Request& request) {
  std::vector<const Tensor*> inputs;
  for (const Tensor& input : request.inputs) inputs.push_back(&input);
  std::sort(inputs.begin(), inputs.end(),
            [](const Tensor* a, const Tensor* b) { return a->name < b->name; });
  std::vector<std::string> outputs = request.requested_outputs;
  std::sort(outputs.begin(), outputs.end());
  std::string key = prefix;
  const Identity identity = request.identity();
  key.append(identity.begin(), identity.end());
  AppendNumber(request.parameters.size(), key);
  key += request.wants_text ? 't' : '-';
  for (const auto& [name, value] : request.parameters) {
    AppendSized(name, key);
    AppendValue(value, key);
  }
  AppendNumber(request.sequence_id, key);
  AppendSized(request.sequence_name, key);
  key.append(request.sequence_start ? "s" : "-").append(request.sequence_end ? "e" : "-");
  AppendNumber(inputs.size(), key);
  for (const Tensor* input : inputs) AppendInput(*input, key);
  for (const std::string& output : outputs) AppendSized(output, key);
  return key;
}

std::shared_ptr<const CachedResponse> ResponseCache::Find(const std::string& key) {
  const std::lock_guard lock(mutex_);
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return nullptr;
  entries_.Touch(found->second);
  return found->second->value.response;
}

void ResponseCache::Insert(const Identity& client, const std::string& key,
                           const Response& response) {
  uint64_t bytes = kEntryBytes + key.size() + BytesOfParameters(response.parameters);
  for (const Tensor& output : response.outputs) bytes += output.data.size();
  if (bytes > capacity_bytes_) return;
  auto kept = std::make_shared<CachedResponse>();
  for (const Tensor& output : response.outputs) kept->outputs.push_back(CopyOf(output));
  kept->parameters = response.parameters;

  const std::lock_guard lock(mutex_);
  if (by_key_.contains(key)) return;  // another request was faster
  if (!entries_.MakeRoom(client, bytes, capacity_bytes_)) return;
  const auto place = entries_.Add(client, bytes, {.key = key, .response = std::move(kept)});
  by_key_[place->value.key] = place;
}

uint64_t ResponseCache::used_bytes() const {
  const std::lock_guard lock(mutex_);
  return entries_.bytes();
}

Result<std::shared_ptr<ResponseCache>> MakeResponseCache(const std::vector<std::string>& config,
                                                         uint64_t byte_size) {
  constexpr std::string_view kSize = "local,size=";
  if (byte_size > 0 && !config.empty()) {
    return InvalidArgument(
        "--response-cache-byte-size and --cache-config: give one of them, the first is the former "
        "name of --cache-config local,size=<bytes>");
  }
  std::optional<uint64_t> size;
  if (byte_size > 0) size = byte_size;
  for (const std::string& word : config) {
    const std::string name = word.substr(0, word.find(','));
    if (name != "local") {
      return InvalidArgument("--cache-config: got '" + word +
                             "', only the cache 'local' is supported: local,size=<bytes>");
    }
    if (!word.starts_with(kSize)) return ParseSize(word, {}).status();
    ASSIGN_OR_RETURN(size, ParseSize(word, std::string_view(word).substr(kSize.size())));
  }
  if (!size) return std::shared_ptr<ResponseCache>();
  return std::make_shared<ResponseCache>(*size);
}

}  // namespace inflight::serving
