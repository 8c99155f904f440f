// SPDX-License-Identifier: Apache-2.0
// Amazon S3 and what speaks as it does, with the bucket in the path.
// Source: Amazon S3's API reference, ListObjectsV2, GetObject, HeadObject.
#include <algorithm>
#include <charconv>

#include "base/hex.h"
#include "base/percent_encoding.h"
#include "base/status_macros.h"
#include "object_store/aws_credentials.h"
#include "object_store/service.h"
#include "object_store/xml.h"

namespace inflight::object_store {
namespace {

// "d41d8cd98f00b204e9800998ecf8427e" is the MD5 of what came in one, with "-3" behind it that of
// the MD5s of three parts; other ETags say nothing.
void ReadEtag(const std::string& etag, Object& object) {
  std::string_view text = etag;
  if (text.size() > 1 && text.front() == '"' && text.back() == '"')
    text = text.substr(1, text.size() - 2);
  constexpr size_t kDigits = 32;
  if (text.size() < kDigits) return;
  auto bytes = FromHex(text.substr(0, kDigits));
  if (!bytes) return;
  const std::string_view rest = text.substr(kDigits);
  int parts = 0;
  if (!rest.empty()) {
    const auto [end, error] = std::from_chars(rest.data() + 1, rest.data() + rest.size(), parts);
    if (rest[0] != '-' || error != std::errc() || end != rest.data() + rest.size() || parts < 1)
      return;
  }
  object.md5 = *std::move(bytes);
  object.num_parts = parts;
}

class S3Service : public Service {
 public:
  S3Service(const Address& address, const Environment& environment)
      : address_(address), credentials_(address, environment), endpoint_(address.endpoint) {
    for (const char* const name : {"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"})
      if (endpoint_.empty()) endpoint_ = environment(name);
    while (endpoint_.ends_with('/')) endpoint_.pop_back();
  }

  HttpRequest ListRequest(const std::string& folder, bool is_recursive,
                          const std::string& page) const override {
    HttpRequest request;
    request.path = "/" + address_.bucket;
    request.query = {{"encoding-type", "url"},
                     {"list-type", "2"},
                     {"max-keys", "1000"},
                     {"prefix", folder.empty() ? "" : folder + "/"}};
    if (!is_recursive) request.query.emplace_back("delimiter", "/");
    if (!page.empty()) request.query.emplace_back("continuation-token", page);
    return request;
  }

  Result<std::string> ReadPage(const std::string& body, Listing& listing) const override {
    ASSIGN_OR_RETURN(const XmlElement root, ParseXml(body));
    if (root.name != "ListBucketResult") return Internal("answers with no listing of a bucket");
    const bool is_encoded = root.TextOf("EncodingType") == "url";
    const auto key_of = [&](const std::string& text) {
      return is_encoded ? PercentDecode(text, /*plus_is_blank=*/true) : text;
    };
    for (const XmlElement& child : root.children) {
      if (child.name == "CommonPrefixes") {
        std::string folder = key_of(child.TextOf("Prefix"));
        if (folder.ends_with('/')) folder.pop_back();
        listing.folders.push_back(std::move(folder));
      } else if (child.name == "Contents") {
        Object object{.key = key_of(child.TextOf("Key"))};
        const std::string size = child.TextOf("Size");
        const auto read = std::from_chars(size.data(), size.data() + size.size(), object.size);
        if (read.ec != std::errc()) return Internal("lists an object without a size");
        object.version = child.TextOf("ETag");
        if (object.version.empty()) object.version = child.TextOf("LastModified");
        ReadEtag(child.TextOf("ETag"), object);
        listing.objects.push_back(std::move(object));
      }
    }
    return root.TextOf("IsTruncated") == "true" ? root.TextOf("NextContinuationToken")
                                                : std::string();
  }

  HttpRequest ReadRequest(const Object& object) const override {
    HttpRequest request;
    request.path = "/" + address_.bucket + "/" + PercentEncode(object.key, "/");
    if (object.version.starts_with('"')) request.headers = {{"if-match", object.version}};
    return request;
  }

  // The ETag of what S3 encrypts by other keys than its own is no digest.
  bool HasDigest(const HttpResponse& response) const override {
    return !response.Header("x-amz-server-side-encryption").starts_with("aws:kms") &&
           response.Header("x-amz-server-side-encryption-customer-algorithm").empty();
  }

  std::optional<HttpRequest> PartRequest(const Object& object) const override {
    HttpRequest request = ReadRequest(object);
    request.method = "HEAD";
    request.query = {{"partNumber", "1"}};
    return request;
  }

  Status Authorize(const Send& send, HttpRequest& request) override {
    ASSIGN_OR_RETURN(const AwsKeys keys, credentials_.Get(send));
    request.origin =
        endpoint_.empty() ? "https://s3." + credentials_.region() + ".amazonaws.com" : endpoint_;
    if (keys.key_id.empty()) return Status::Ok();
    SignAws(keys, {.region = credentials_.region()}, std::time(nullptr), request);
    return Status::Ok();
  }

  void ForgetCredentials() override { credentials_.Forget(); }

  // A bucket lies in one region, and says in which.
  bool Adapt(const HttpResponse& response) override {
    std::string region = response.Header("x-amz-bucket-region");
    if (region.empty() && response.status == 400) {
      const auto document = ParseXml(response.body);
      if (document.ok()) region = document->TextOf("Region");
    }
    const bool is_name = std::ranges::all_of(region, [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
    });
    if (region.empty() || !is_name || region == credentials_.region()) return false;
    credentials_.SetRegion(region);
    return true;
  }

  StoreError ErrorOf(const HttpResponse& response) const override {
    return ErrorOfXml(response.body);
  }

 private:
  const Address address_;
  AwsCredentials credentials_;
  std::string endpoint_;
};

}  // namespace

StoreError ErrorOfXml(const std::string& body) {
  const auto document = ParseXml(body);
  if (!document.ok()) return {};
  return {.code = document->TextOf("Code"), .message = document->TextOf("Message")};
}

std::unique_ptr<Service> MakeS3(const Address& address, const Environment& environment) {
  return std::make_unique<S3Service>(address, environment);
}

}  // namespace inflight::object_store
