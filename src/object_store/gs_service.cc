// SPDX-License-Identifier: Apache-2.0
// Google Cloud Storage by its JSON interface.
// Source: Cloud Storage's JSON API reference, Objects: list and get.
#include <charconv>
#include <nlohmann/json.hpp>

#include "base/base64.h"
#include "base/percent_encoding.h"
#include "base/status_macros.h"
#include "object_store/bearer_tokens.h"
#include "object_store/json_text.h"
#include "object_store/service.h"

namespace inflight::object_store {
namespace {

using Json = nlohmann::json;

// Four bytes, the highest first, in base64.
std::optional<uint32_t> ReadCrc(const std::string& text) {
  const auto bytes = DecodeBase64(text);
  if (!bytes || bytes->size() != 4) return std::nullopt;
  uint32_t value = 0;
  for (const char c : *bytes) value = value << 8 | static_cast<uint8_t>(c);
  return value;
}

Result<Object> ReadItem(const Json& item) {
  if (!item.is_object()) return Internal("lists an object that is none");
  Object object{.key = TextOf(item, "name"), .version = TextOf(item, "generation")};
  const std::string size = TextOf(item, "size");
  const auto read = std::from_chars(size.data(), size.data() + size.size(), object.size);
  if (object.key.empty() || read.ec != std::errc())
    return Internal("lists an object without a name or a size");
  if (auto md5 = DecodeBase64(TextOf(item, "md5Hash")); md5 && md5->size() == 16)
    object.md5 = *std::move(md5);
  object.crc32c = ReadCrc(TextOf(item, "crc32c"));
  if (object.version.empty()) object.version = TextOf(item, "etag");
  return object;
}

class GsService : public Service {
 public:
  GsService(const Address& address, const Environment& environment)
      : address_(address), environment_(environment) {
    const std::string emulator = environment("STORAGE_EMULATOR_HOST");
    is_emulated_ = !emulator.empty();
    origin_ = !is_emulated_                               ? "https://storage.googleapis.com"
              : emulator.find("://") == std::string::npos ? "http://" + emulator
                                                          : emulator;
    while (origin_.ends_with('/')) origin_.pop_back();
  }

  HttpRequest ListRequest(const std::string& folder, bool is_recursive,
                          const std::string& page) const override {
    HttpRequest request;
    request.path = Objects();
    request.query = {
        {"fields", "nextPageToken,prefixes,items(name,size,generation,etag,md5Hash,crc32c)"},
        {"maxResults", "1000"},
        {"prefix", folder.empty() ? "" : folder + "/"}};
    if (!is_recursive) request.query.emplace_back("delimiter", "/");
    if (!page.empty()) request.query.emplace_back("pageToken", page);
    return request;
  }

  Result<std::string> ReadPage(const std::string& body, Listing& listing) const override {
    ASSIGN_OR_RETURN(const Json page, ParseObject(body, "a listing"));
    if (const auto items = page.find("items"); items != page.end()) {
      for (const Json& item : *items) {
        ASSIGN_OR_RETURN(Object object, ReadItem(item));
        listing.objects.push_back(std::move(object));
      }
    }
    if (const auto folders = page.find("prefixes"); folders != page.end()) {
      for (const Json& folder : *folders) {
        std::string name = folder.is_string() ? folder.get<std::string>() : std::string();
        if (name.ends_with('/')) name.pop_back();
        if (!name.empty()) listing.folders.push_back(std::move(name));
      }
    }
    return TextOf(page, "nextPageToken");
  }

  HttpRequest ReadRequest(const Object& object) const override {
    HttpRequest request;
    request.path = Objects() + "/" + PercentEncode(object.key);
    request.query = {{"alt", "media"}, {"generation", object.version}};
    // As it is stored: what is stored compressed would come in another length.
    request.headers = {{"accept-encoding", "gzip"}};
    return request;
  }

  Status Authorize(const Send& send, HttpRequest& request) override {
    request.origin = origin_;
    if (!token_ || (token_->expires != 0 && token_->expires <= std::time(nullptr))) {
      ASSIGN_OR_RETURN(token_, GetGoogleToken(address_, environment_,
                                              /*asks_machine=*/!is_emulated_, send));
    }
    if (!token_->text.empty())
      request.headers.emplace_back("authorization", "Bearer " + token_->text);
    return Status::Ok();
  }

  void ForgetCredentials() override { token_.reset(); }

  // {"error": {"message": .., "errors": [{"reason": ..}]}}, or a line of text.
  StoreError ErrorOf(const HttpResponse& response) const override {
    const auto document = ParseObject(response.body, "");
    if (!document.ok()) return {};
    const auto error = document->find("error");
    if (error == document->end() || !error->is_object()) return {};
    StoreError found{.code = {}, .message = TextOf(*error, "message")};
    const auto errors = error->find("errors");
    const bool has_reason = errors != error->end() && errors->is_array() && !errors->empty() &&
                            errors->front().is_object();
    if (has_reason) found.code = TextOf(errors->front(), "reason");
    return found;
  }

 private:
  std::string Objects() const { return "/storage/v1/b/" + PercentEncode(address_.bucket) + "/o"; }

  const Address address_;
  const Environment environment_;
  std::string origin_;
  bool is_emulated_ = false;
  std::optional<BearerToken> token_;
};

}  // namespace

std::unique_ptr<Service> MakeGs(const Address& address, const Environment& environment) {
  return std::make_unique<GsService>(address, environment);
}

}  // namespace inflight::object_store
