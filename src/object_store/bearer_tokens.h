// SPDX-License-Identifier: Apache-2.0
// Access tokens of Google's and Azure's identities.
//
// Google: the JSON file of TRITON_CLOUD_CREDENTIAL_PATH, of GOOGLE_APPLICATION_CREDENTIALS or of
// gcloud (a service account, or an authorised user), else the account of the machine, else none.
// Azure: the managed identity of the machine, of App Service's too.
//
// Threads: one at a time.
// Sources: "Using OAuth 2.0 for Server to Server Applications" of Google; RFC 7523; "How to use
// managed identities for Azure resources to acquire an access token" of Microsoft.
#pragma once

#include <ctime>
#include <optional>
#include <string>

#include "object_store/address.h"
#include "object_store/http_message.h"
#include "object_store/options.h"

namespace inflight::object_store {

struct BearerToken {
  std::string text;  // empty: none is sent
  std::time_t expires = 0;
};

// `asks_machine`: where no file is named the machine's metadata service is asked, too.
Result<BearerToken> GetGoogleToken(const Address& address, const Environment& environment,
                                   bool asks_machine, const Send& send);

// kUnavailable where the machine has no identity.
Result<BearerToken> GetAzureToken(const Environment& environment, const Send& send);

}  // namespace inflight::object_store
