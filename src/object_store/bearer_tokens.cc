// SPDX-License-Identifier: Apache-2.0
#include "object_store/bearer_tokens.h"

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/file.h"
#include "base/status_macros.h"
#include "object_store/credential_file.h"
#include "object_store/credential_sources.h"
#include "object_store/digest.h"
#include "object_store/json_text.h"

namespace inflight::object_store {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr char kGoogleTokenUri[] = "https://oauth2.googleapis.com/token";
constexpr char kReadScope[] = "https://www.googleapis.com/auth/devstorage.read_only";

// {"access_token": .., "expires_in": 3599}, the number as text where Azure gives it.
Result<BearerToken> ReadToken(const Result<HttpResponse>& response, const std::string& where) {
  if (!response.ok()) return response.status().WithPrefix(where);
  const auto document = ParseObject(response->body, where);
  if (response->status != 200) {
    const std::string why = document.ok() ? " " + TextOf(*document, "error") : std::string();
    return FailedPrecondition(where + ": gives no token: HTTP " + std::to_string(response->status) +
                              why);
  }
  RETURN_IF_ERROR(document.status());
  BearerToken token{.text = TextOf(*document, "access_token")};
  if (token.text.empty()) return Unavailable(where + ": gave no token");
  const auto seconds = document->find("expires_in");
  std::time_t left = 3600;
  if (seconds != document->end() && seconds->is_number()) left = seconds->get<std::time_t>();
  if (seconds != document->end() && seconds->is_string())
    left = std::atoll(seconds->get<std::string>().c_str());
  token.expires = std::time(nullptr) + left - kEarlySeconds;
  return token;
}

Result<BearerToken> OfForm(const std::string& uri, const Pairs& form, const Send& send,
                           const std::string& where) {
  HttpRequest request = RequestTo(uri);
  request.method = "POST";
  request.headers = {{"content-type", "application/x-www-form-urlencoded"}};
  request.body = EncodeQuery(form);
  return ReadToken(send(request, {.timeout_ms = 30'000}), where + " (" + uri + ")");
}

// A signed statement of who asks, for which the token is given.
Result<BearerToken> OfServiceAccount(const Json& account, const std::string& file,
                                     const Send& send) {
  std::string uri = TextOf(account, "token_uri");
  if (uri.empty()) uri = kGoogleTokenUri;
  const std::string email = TextOf(account, "client_email");
  const std::string key = TextOf(account, "private_key");
  if (email.empty() || key.empty())
    return InvalidArgument(file + ": a service account has client_email and private_key");
  const std::time_t now = std::time(nullptr);
  Json header = {{"alg", "RS256"}, {"typ", "JWT"}};
  if (const std::string id = TextOf(account, "private_key_id"); !id.empty()) header["kid"] = id;
  const Json claims = {
      {"iss", email}, {"scope", kReadScope}, {"aud", uri}, {"iat", now}, {"exp", now + 3600}};
  const auto text = [](const Json& json) {
    return json.dump(-1, ' ', false, Json::error_handler_t::replace);
  };
  const std::string statement = Base64Url(text(header)) + "." + Base64Url(text(claims));
  auto signature = SignRs256(key, statement);
  if (!signature.ok()) return signature.status().WithPrefix(file);
  return OfForm(uri,
                {{"grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer"},
                 {"assertion", statement + "." + Base64Url(*signature)}},
                send, file);
}

Result<BearerToken> OfGoogleFile(const std::string& file, const Send& send) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(file, kMaxCredentialBytes));
  ASSIGN_OR_RETURN(const Json document, ParseObject(text, file));
  const std::string type = TextOf(document, "type");
  if (type == "service_account") return OfServiceAccount(document, file, send);
  if (type != "authorized_user")
    return Unimplemented(file + ": its type is '" + type +
                         "', service_account and authorized_user are supported");
  std::string uri = TextOf(document, "token_uri");
  if (uri.empty()) uri = kGoogleTokenUri;
  return OfForm(uri,
                {{"grant_type", "refresh_token"},
                 {"client_id", TextOf(document, "client_id")},
                 {"client_secret", TextOf(document, "client_secret")},
                 {"refresh_token", TextOf(document, "refresh_token")}},
                send, file);
}

// Where gcloud keeps it.
std::string WellKnownFile(const Environment& environment) {
  fs::path folder = environment("CLOUDSDK_CONFIG");
  if (folder.empty() && !environment("HOME").empty())
    folder = fs::path(environment("HOME")) / ".config/gcloud";
  const fs::path file = folder / "application_default_credentials.json";
  return !folder.empty() && FileExists(file) ? file.string() : std::string();
}

}  // namespace

Result<BearerToken> GetGoogleToken(const Address& address, const Environment& environment,
                                   bool asks_machine, const Send& send) {
  ASSIGN_OR_RETURN(const auto entry, FindCloudCredential(address, environment));
  std::string file = entry ? entry->json_file : environment("GOOGLE_APPLICATION_CREDENTIALS");
  if (file.empty() && asks_machine) file = WellKnownFile(environment);
  if (!file.empty()) return OfGoogleFile(file, send);
  if (!asks_machine) return BearerToken();
  const std::string host = environment("GCE_METADATA_HOST");
  HttpRequest request;
  request.origin = "http://" + (host.empty() ? "metadata.google.internal" : host);
  request.path = "/computeMetadata/v1/instance/service-accounts/default/token";
  request.headers = {{"metadata-flavor", "Google"}};
  auto response = send(request, kMetadataService);
  if (!response.ok() || response->status == 404) return BearerToken();  // no machine of Google's
  return ReadToken(response, "the machine's account at " + request.origin);
}

Result<BearerToken> GetAzureToken(const Environment& environment, const Send& send) {
  const std::string resource = "https://storage.azure.com/";
  const std::string client = environment("AZURE_STORAGE_CLIENT_ID");
  HttpRequest request;
  const std::string endpoint = environment("IDENTITY_ENDPOINT");
  if (!endpoint.empty()) {
    request = RequestTo(endpoint);
    request.query = {{"api-version", "2019-08-01"}, {"resource", resource}};
    request.headers = {{"x-identity-header", environment("IDENTITY_HEADER")}};
  } else {
    std::string host = environment("AZURE_POD_IDENTITY_AUTHORITY_HOST");
    while (host.ends_with('/')) host.pop_back();
    request.origin = host.empty() ? "http://169.254.169.254" : host;
    request.path = "/metadata/identity/oauth2/token";
    request.query = {{"api-version", "2018-02-01"}, {"resource", resource}};
    request.headers = {{"metadata", "true"}};
  }
  if (!client.empty()) request.query.emplace_back("client_id", client);
  return ReadToken(send(request, kMetadataService), "the managed identity at " + request.origin);
}

}  // namespace inflight::object_store
