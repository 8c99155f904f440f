// SPDX-License-Identifier: Apache-2.0
// How requests are signed: AWS Signature Version 4 and Azure's Shared Key. All headers that a
// request has are signed.
//
// Sources: "Authenticating Requests (AWS Signature Version 4)" of Amazon S3's API reference;
// "Authorize with Shared Key" of Azure Storage's REST API reference.
#pragma once

#include <ctime>
#include <string>

#include "object_store/http_message.h"

namespace inflight::object_store {

struct AwsKeys {
  std::string key_id;  // empty: requests are not signed
  std::string secret;
  std::string session_token;  // of keys that end
};

struct AwsScope {
  std::string region;
  std::string service = "s3";
};

// Adds x-amz-date, x-amz-content-sha256, x-amz-security-token and authorization.
void SignAws(const AwsKeys& keys, const AwsScope& scope, std::time_t now, HttpRequest& request);
// The first step of it, for a request that has its x-amz headers.
std::string CanonicalAwsRequest(const HttpRequest& request);

struct AzureKey {
  std::string account;
  std::string key;  // bytes
};

// Adds x-ms-date, x-ms-version and authorization.
void SignAzure(const AzureKey& key, std::time_t now, HttpRequest& request);
// Without a signature: what every request has.
void AddAzureHeaders(std::time_t now, HttpRequest& request);

// "Sun, 06 Nov 1994 08:49:37 GMT", RFC 9110.
std::string HttpDate(std::time_t time);
// Of "2013-05-24T00:00:00Z", fractions of a second left out; 0 where the text is no such time.
std::time_t ParseTime(const std::string& text);

}  // namespace inflight::object_store
