// SPDX-License-Identifier: Apache-2.0
// Azure Blob Storage.
// Source: the REST API reference of Azure Storage, "List Blobs" and "Get Blob"; "Configure Azure
// Storage connection strings".
#include <algorithm>
#include <charconv>
#include <map>

#include "base/base64.h"
#include "base/percent_encoding.h"
#include "base/status_macros.h"
#include "object_store/bearer_tokens.h"
#include "object_store/credential_file.h"
#include "object_store/service.h"
#include "object_store/signing.h"
#include "object_store/xml.h"

namespace inflight::object_store {
namespace {

// What says who asks: a key, a shared access signature, an identity, or nothing.
struct AzureAccess {
  std::string account;
  std::string key;  // bytes
  Pairs signature;  // parameters
  bool has_identity = false;
  std::string endpoint;  // "https://account.blob.core.windows.net"
};

Result<std::string> DecodeKey(const std::string& text, const char* name) {
  auto key = DecodeBase64(text);
  if (!key || key->empty()) return InvalidArgument(std::string(name) + ": is no key in base64");
  return *std::move(key);
}

Pairs ReadSignature(std::string_view text) {
  Pairs pairs;
  if (text.starts_with('?')) text.remove_prefix(1);
  while (!text.empty()) {
    const std::string_view pair = text.substr(0, text.find('&'));
    text.remove_prefix(std::min(pair.size() + 1, text.size()));
    const size_t equals = pair.find('=');
    if (equals == std::string_view::npos) continue;
    pairs.emplace_back(PercentDecode(pair.substr(0, equals), false),
                       PercentDecode(pair.substr(equals + 1), false));
  }
  return pairs;
}

// "Name=value;..."; values may have '='.
std::map<std::string, std::string> ReadConnection(std::string_view text) {
  std::map<std::string, std::string> values;
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find(';'));
    text.remove_prefix(std::min(part.size() + 1, text.size()));
    const size_t equals = part.find('=');
    if (equals == std::string_view::npos) continue;
    values.emplace(part.substr(0, equals), part.substr(equals + 1));
  }
  return values;
}

Status CheckAccount(const Address& address, const std::string& account, const char* name) {
  if (account.empty() || account == address.account) return Status::Ok();
  return InvalidArgument(std::string(name) + ": is the account '" + account + "', but " +
                         address.text + " is of '" + address.account + "'");
}

Status ReadConnectionString(const Address& address, const std::string& text, AzureAccess& access) {
  constexpr char kName[] = "AZURE_STORAGE_CONNECTION_STRING";
  auto values = ReadConnection(text);
  RETURN_IF_ERROR(CheckAccount(address, values["AccountName"], kName));
  if (!values["AccountKey"].empty()) {
    ASSIGN_OR_RETURN(access.key, DecodeKey(values["AccountKey"], kName));
  }
  access.signature = ReadSignature(values["SharedAccessSignature"]);
  access.endpoint = values["BlobEndpoint"];
  while (access.endpoint.ends_with('/')) access.endpoint.pop_back();
  if (access.endpoint.empty() && !values["EndpointSuffix"].empty()) {
    const std::string& protocol = values["DefaultEndpointsProtocol"];
    access.endpoint = (protocol == "http" ? "http://" : "https://") + address.account + ".blob." +
                      values["EndpointSuffix"];
  }
  return Status::Ok();
}

Result<AzureAccess> FindAccess(const Address& address, const Environment& environment) {
  AzureAccess access{.account = address.account,
                     .key = {},
                     .signature = {},
                     .has_identity = false,
                     .endpoint = {}};
  const std::string connection = environment("AZURE_STORAGE_CONNECTION_STRING");
  if (!connection.empty()) RETURN_IF_ERROR(ReadConnectionString(address, connection, access));
  if (access.endpoint.empty())
    access.endpoint = "https://" + address.account + ".blob.core.windows.net";
  ASSIGN_OR_RETURN(const auto entry, FindCloudCredential(address, environment));
  if (entry) {
    constexpr char kName[] = "TRITON_CLOUD_CREDENTIAL_PATH";
    RETURN_IF_ERROR(CheckAccount(address, entry->account, kName));
    access.key.clear();
    access.signature.clear();
    if (!entry->account_key.empty()) {
      ASSIGN_OR_RETURN(access.key, DecodeKey(entry->account_key, kName));
    }
    return access;
  }
  if (!access.key.empty() || !access.signature.empty()) return access;
  if (const std::string key = environment("AZURE_STORAGE_KEY"); !key.empty()) {
    RETURN_IF_ERROR(
        CheckAccount(address, environment("AZURE_STORAGE_ACCOUNT"), "AZURE_STORAGE_ACCOUNT"));
    ASSIGN_OR_RETURN(access.key, DecodeKey(key, "AZURE_STORAGE_KEY"));
    return access;
  }
  access.signature = ReadSignature(environment("AZURE_STORAGE_SAS_TOKEN"));
  const std::string type = environment("AZURE_STORAGE_AUTH_TYPE");
  if (!type.empty() && type != "managed_identity" && type != "default")
    return InvalidArgument("AZURE_STORAGE_AUTH_TYPE",
                           "got '" + type + "', managed_identity and default are supported");
  access.has_identity = !type.empty();
  return access;
}

class AsService : public Service {
 public:
  AsService(const Address& address, const Environment& environment, AzureAccess access)
      : address_(address), environment_(environment), access_(std::move(access)) {
    const size_t slash = access_.endpoint.find('/', access_.endpoint.find("://") + 3);
    origin_ = access_.endpoint.substr(0, slash);
    if (slash != std::string::npos) path_ = access_.endpoint.substr(slash);
  }

  HttpRequest ListRequest(const std::string& folder, bool is_recursive,
                          const std::string& page) const override {
    HttpRequest request;
    request.path = path_ + "/" + address_.bucket;
    request.query = {{"comp", "list"},
                     {"maxresults", "1000"},
                     {"prefix", folder.empty() ? "" : folder + "/"},
                     {"restype", "container"}};
    if (!is_recursive) request.query.emplace_back("delimiter", "/");
    if (!page.empty()) request.query.emplace_back("marker", page);
    return request;
  }

  Result<std::string> ReadPage(const std::string& body, Listing& listing) const override {
    // Azure writes a byte order mark before its XML, which expat takes.
    ASSIGN_OR_RETURN(const XmlElement root, ParseXml(body));
    const XmlElement* const blobs = root.Find("Blobs");
    if (root.name != "EnumerationResults" || blobs == nullptr)
      return Internal("answers with no listing of a container");
    for (const XmlElement& child : blobs->children) {
      if (child.name == "BlobPrefix") {
        std::string folder = child.TextOf("Name");
        if (folder.ends_with('/')) folder.pop_back();
        listing.folders.push_back(std::move(folder));
        continue;
      }
      const XmlElement* const properties = child.Find("Properties");
      if (child.name != "Blob" || properties == nullptr) continue;
      Object object{.key = child.TextOf("Name")};
      const std::string size = properties->TextOf("Content-Length");
      const auto read = std::from_chars(size.data(), size.data() + size.size(), object.size);
      if (read.ec != std::errc()) return Internal("lists a blob without a length");
      object.version = properties->TextOf("Etag");
      if (object.version.empty()) object.version = properties->TextOf("Last-Modified");
      if (auto md5 = DecodeBase64(properties->TextOf("Content-MD5")); md5 && md5->size() == 16)
        object.md5 = *std::move(md5);
      listing.objects.push_back(std::move(object));
    }
    return root.TextOf("NextMarker");
  }

  HttpRequest ReadRequest(const Object& object) const override {
    HttpRequest request;
    request.path = path_ + "/" + address_.bucket + "/" + PercentEncode(object.key, "/");
    const std::string& etag = object.version;
    if (etag.starts_with('"')) request.headers = {{"if-match", etag}};
    if (etag.starts_with("0x")) request.headers = {{"if-match", "\"" + etag + "\""}};
    return request;
  }

  std::string RangeHeader() const override { return "x-ms-range"; }  // signed as x-ms headers are

  Status Authorize(const Send& send, HttpRequest& request) override {
    request.origin = origin_;
    const std::time_t now = std::time(nullptr);
    if (!access_.key.empty()) {
      SignAzure({.account = access_.account, .key = access_.key}, now, request);
      return Status::Ok();
    }
    AddAzureHeaders(now, request);
    request.query.insert(request.query.end(), access_.signature.begin(), access_.signature.end());
    if (!access_.has_identity || !access_.signature.empty()) return Status::Ok();
    if (!token_ || token_->expires <= now) {
      ASSIGN_OR_RETURN(token_, GetAzureToken(environment_, send));
    }
    request.headers.emplace_back("authorization", "Bearer " + token_->text);
    return Status::Ok();
  }

  void ForgetCredentials() override { token_.reset(); }

  // The first line of the message; behind it stand an id and a time.
  StoreError ErrorOf(const HttpResponse& response) const override {
    StoreError error = ErrorOfXml(response.body);
    error.message = error.message.substr(0, error.message.find('\n'));
    if (error.code.empty()) error.code = response.Header("x-ms-error-code");
    return error;
  }

 private:
  const Address address_;
  const Environment environment_;
  const AzureAccess access_;
  std::string origin_;
  std::string path_;  // of Azurite: the account
  std::optional<BearerToken> token_;
};

}  // namespace

Result<std::unique_ptr<Service>> MakeAs(const Address& address, const Environment& environment) {
  ASSIGN_OR_RETURN(AzureAccess access, FindAccess(address, environment));
  return std::unique_ptr<Service>(
      std::make_unique<AsService>(address, environment, std::move(access)));
}

}  // namespace inflight::object_store
