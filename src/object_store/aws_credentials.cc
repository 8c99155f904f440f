// SPDX-License-Identifier: Apache-2.0
#include "object_store/aws_credentials.h"

#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <sstream>
#include <utility>

#include "base/file.h"
#include "base/percent_encoding.h"
#include "base/status_macros.h"
#include "object_store/credential_file.h"
#include "object_store/credential_sources.h"
#include "object_store/json_text.h"
#include "object_store/xml.h"

namespace inflight::object_store {
namespace {

namespace fs = std::filesystem;

constexpr char kDefaultRegion[] = "us-east-1";

std::string Trimmed(std::string text) {
  const auto is_blank = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
  while (!text.empty() && is_blank(text.back())) text.pop_back();
  text.erase(text.begin(), std::ranges::find_if_not(text, is_blank));
  return text;
}

// The section [name] of an INI file of AWS's tools.
void ReadSection(const std::string& text, const std::string& name,
                 std::map<std::string, std::string>& values) {
  std::istringstream lines(text);
  bool is_in = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with('[')) {
      is_in = Trimmed(line) == "[" + name + "]";
      continue;
    }
    const size_t equals = line.find('=');
    const bool is_comment = line.starts_with('#') || line.starts_with(';');
    if (!is_in || is_comment || equals == std::string::npos) continue;
    values.try_emplace(Trimmed(line.substr(0, equals)), Trimmed(line.substr(equals + 1)));
  }
}

std::string FirstOf(const Environment& environment, std::initializer_list<const char*> names) {
  for (const char* const name : names)
    if (std::string value = environment(name); !value.empty()) return value;
  return {};
}

// The rule of AWS's SDKs: a token goes over TLS, or to an address of the container's own host.
bool MayHaveToken(const std::string& origin) {
  if (origin.starts_with("https://")) return true;
  std::string host(HostOf(origin));
  if (host.starts_with('[')) {
    host = host.substr(1, host.find(']') - 1);
  } else {
    host = host.substr(0, host.find(':'));
  }
  return host == "localhost" || host.starts_with("127.") || host == "::1" ||
         host == "169.254.170.2" || host == "169.254.170.23" || host == "fd00:ec2::23";
}

}  // namespace

void AwsCredentials::SetRegionOnce(const std::string& region) {
  if (region_.empty()) region_ = region;
}

Result<AwsKeys> AwsCredentials::Get(const Send& send) {
  const std::time_t now = std::time(nullptr);
  const bool ends = keys_ && keys_->expires != 0 && keys_->expires - kEarlySeconds <= now;
  if (!keys_ || ends) {
    ASSIGN_OR_RETURN(keys_, Find(send));
    SetRegionOnce(kDefaultRegion);
  }
  return keys_->keys;
}

Result<AwsCredentials::Found> AwsCredentials::Find(const Send& send) {
  SetRegionOnce(FirstOf(environment_, {"AWS_DEFAULT_REGION", "AWS_REGION"}));
  ASSIGN_OR_RETURN(auto found, OfCloudFile());
  if (found) return *std::move(found);
  const AwsKeys keys = {.key_id = environment_("AWS_ACCESS_KEY_ID"),
                        .secret = environment_("AWS_SECRET_ACCESS_KEY"),
                        .session_token = environment_("AWS_SESSION_TOKEN")};
  if (keys.key_id.empty() != keys.secret.empty())
    return InvalidArgument(
        "of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY one is set; set both or none");
  const std::string profile = FirstOf(environment_, {"AWS_PROFILE", "AWS_DEFAULT_PROFILE"});
  if (!keys.key_id.empty()) {
    const auto settings = ReadProfile(profile.empty() ? "default" : profile);  // its region
    if (settings.ok() && settings->contains("region")) SetRegionOnce(settings->at("region"));
    return Found{.keys = keys};
  }
  ASSIGN_OR_RETURN(found, OfProfile(profile.empty() ? "default" : profile, !profile.empty()));
  if (!found) {
    ASSIGN_OR_RETURN(found, OfWebIdentity(send));
  }
  if (!found) {
    ASSIGN_OR_RETURN(found, OfContainer(send));
  }
  if (!found) {
    ASSIGN_OR_RETURN(found, OfInstance(send));
  }
  return found ? *std::move(found) : Found{};
}

AwsCredentials::MaybeFound AwsCredentials::OfCloudFile() {
  ASSIGN_OR_RETURN(const auto entry, FindCloudCredential(address_, environment_));
  if (!entry) return std::optional<Found>();
  if (!entry->region.empty()) region_ = entry->region;
  if (entry->key_id.empty() != entry->secret_key.empty())
    return InvalidArgument(
        "TRITON_CLOUD_CREDENTIAL_PATH: of key_id and secret_key one is given; give both or none");
  if (entry->key_id.empty())
    return OfProfile(entry->profile.empty() ? "default" : entry->profile, /*is_named=*/true);
  return std::optional(Found{.keys = {.key_id = entry->key_id,
                                      .secret = entry->secret_key,
                                      .session_token = entry->session_token}});
}

// What both shared files say of it; nothing where neither is there.
Result<AwsCredentials::Profile> AwsCredentials::ReadProfile(const std::string& name) {
  Profile values;
  const fs::path home = environment_("HOME");
  const struct {
    const char* variable;
    const char* file;
    std::string section;
  } files[] = {{"AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials", name},
               {"AWS_CONFIG_FILE", ".aws/config", name == "default" ? name : "profile " + name}};
  for (const auto& [variable, file, section] : files) {
    const std::string named = environment_(variable);
    const fs::path path = named.empty() ? home / file : fs::path(named);
    if (named.empty() && (home.empty() || !FileExists(path))) continue;
    ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxCredentialBytes));
    ReadSection(text, section, values);
  }
  return values;
}

AwsCredentials::MaybeFound AwsCredentials::OfProfile(const std::string& name, bool is_named) {
  ASSIGN_OR_RETURN(Profile profile, ReadProfile(name));
  SetRegionOnce(profile["region"]);
  AwsKeys keys = {.key_id = profile["aws_access_key_id"],
                  .secret = profile["aws_secret_access_key"],
                  .session_token = profile["aws_session_token"]};
  if (!keys.key_id.empty() && !keys.secret.empty())
    return std::optional(Found{.keys = std::move(keys)});
  for (const char* const other :
       {"role_arn", "credential_process", "sso_session", "sso_start_url"}) {
    if (!profile[other].empty())
      return Unimplemented("the AWS profile '" + name + "' has " + other +
                           ", which is not supported; give keys, or run where the container or the "
                           "instance has a role");
  }
  if (is_named)
    return FailedPrecondition("the AWS profile '" + name +
                              "' has no aws_access_key_id and aws_secret_access_key in "
                              "~/.aws/credentials (AWS_SHARED_CREDENTIALS_FILE)");
  return std::optional<Found>();
}

// {"AccessKeyId": .., "SecretAccessKey": .., "Token": .., "Expiration": ..}
AwsCredentials::MaybeFound AwsCredentials::FromJson(const std::string& text,
                                                    const std::string& where) {
  ASSIGN_OR_RETURN(const auto document, ParseObject(text, where));
  Found found{.keys = {.key_id = TextOf(document, "AccessKeyId"),
                       .secret = TextOf(document, "SecretAccessKey"),
                       .session_token = TextOf(document, "Token")},
              .expires = ParseTime(TextOf(document, "Expiration"))};
  if (found.keys.key_id.empty() || found.keys.secret.empty())
    return Unavailable(where + ": gave no keys");
  return std::optional(std::move(found));
}

AwsCredentials::MaybeFound AwsCredentials::OfWebIdentity(const Send& send) {
  const std::string file = environment_("AWS_WEB_IDENTITY_TOKEN_FILE");
  const std::string role = environment_("AWS_ROLE_ARN");
  if (file.empty() || role.empty()) return std::optional<Found>();
  ASSIGN_OR_RETURN(const std::string token, ReadFile(file, kMaxCredentialBytes));
  const std::string session = environment_("AWS_ROLE_SESSION_NAME");
  std::string origin = environment_("AWS_ENDPOINT_URL_STS");
  if (origin.empty())
    origin = "https://sts." + (region_.empty() ? kDefaultRegion : region_) + ".amazonaws.com";
  const HttpRequest request{
      .method = "POST",
      .origin = origin,
      .path = "/",
      .query = {},
      .headers = {{"content-type", "application/x-www-form-urlencoded"}},
      .body = EncodeQuery({{"Action", "AssumeRoleWithWebIdentity"},
                           {"Version", "2011-06-15"},
                           {"RoleArn", role},
                           {"RoleSessionName", session.empty() ? "inflight" : session},
                           {"WebIdentityToken", Trimmed(token.substr(0, token.find('\n')))}})};
  ASSIGN_OR_RETURN(const HttpResponse response, send(request, {.timeout_ms = 30'000}));
  const std::string where = "the token service of AWS at " + origin;
  const auto document = ParseXml(response.body);
  if (response.status != 200 || !document.ok()) {
    const XmlElement* const error = document.ok() ? document->Find("Error") : nullptr;
    return FailedPrecondition(where + " gives no keys for AWS_ROLE_ARN: HTTP " +
                              std::to_string(response.status) + " " +
                              (error == nullptr ? std::string() : error->TextOf("Code")));
  }
  const XmlElement* const result = document->Find("AssumeRoleWithWebIdentityResult");
  const XmlElement* const keys = result == nullptr ? nullptr : result->Find("Credentials");
  if (keys == nullptr) return Unavailable(where + ": gave no keys");
  return std::optional(Found{.keys = {.key_id = keys->TextOf("AccessKeyId"),
                                      .secret = keys->TextOf("SecretAccessKey"),
                                      .session_token = keys->TextOf("SessionToken")},
                             .expires = ParseTime(keys->TextOf("Expiration"))});
}

AwsCredentials::MaybeFound AwsCredentials::OfContainer(const Send& send) {
  const std::string relative = environment_("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
  const std::string full = environment_("AWS_CONTAINER_CREDENTIALS_FULL_URI");
  if (relative.empty() && full.empty()) return std::optional<Found>();
  HttpRequest request = RequestTo(relative.empty() ? full : "http://169.254.170.2" + relative);
  std::string token = environment_("AWS_CONTAINER_AUTHORIZATION_TOKEN");
  const std::string file = environment_("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
  if (!file.empty()) {
    ASSIGN_OR_RETURN(token, ReadFile(file, kMaxCredentialBytes));
    token = Trimmed(token.substr(0, token.find('\n')));
  }
  if (!MayHaveToken(request.origin))
    return InvalidArgument(
        "AWS_CONTAINER_CREDENTIALS_FULL_URI: got '" + request.origin +
        "', keys come over https, or over http from a loopback address, 169.254.170.2 or "
        "169.254.170.23");
  if (!token.empty()) request.headers.emplace_back("authorization", token);
  ASSIGN_OR_RETURN(const HttpResponse response, send(request, kMetadataService));
  const std::string where = "the container's credentials at " + request.origin;
  if (response.status != 200)
    return FailedPrecondition(where + ": HTTP " + std::to_string(response.status));
  return FromJson(response.body, where);
}

// IMDSv2: a token first, then the role's name, then its keys. No answer: no instance of AWS.
AwsCredentials::MaybeFound AwsCredentials::OfInstance(const Send& send) {
  std::optional<Found> none;
  if (environment_("AWS_EC2_METADATA_DISABLED") == "true") return none;
  HttpRequest request{.method = "PUT",
                      .origin = environment_("AWS_EC2_METADATA_SERVICE_ENDPOINT"),
                      .path = "/latest/api/token",
                      .query = {},
                      .headers = {{"x-aws-ec2-metadata-token-ttl-seconds", "21600"}},
                      .body = {}};
  if (request.origin.empty()) request.origin = "http://169.254.169.254";
  while (request.origin.ends_with('/')) request.origin.pop_back();
  const auto token = send(request, kMetadataService);
  if (!token.ok() || token->status != 200) return none;
  request.method = "GET";
  request.headers = {{"x-aws-ec2-metadata-token", Trimmed(token->body)}};
  if (region_.empty()) {
    request.path = "/latest/meta-data/placement/region";
    const auto region = send(request, kMetadataService);
    if (region.ok() && region->status == 200) region_ = Trimmed(region->body);
  }
  request.path = "/latest/meta-data/iam/security-credentials/";
  ASSIGN_OR_RETURN(const HttpResponse role, send(request, kMetadataService));
  if (role.status != 200) return none;  // an instance without a role
  request.path += PercentEncode(Trimmed(role.body.substr(0, role.body.find('\n'))));
  ASSIGN_OR_RETURN(const HttpResponse keys, send(request, kMetadataService));
  const std::string where = "the instance's credentials at " + request.origin;
  if (keys.status != 200)
    return FailedPrecondition(where + ": HTTP " + std::to_string(keys.status));
  return FromJson(keys.body, where);
}

}  // namespace inflight::object_store
