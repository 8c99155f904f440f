// SPDX-License-Identifier: Apache-2.0
// The file that TRITON_CLOUD_CREDENTIAL_PATH names: credentials by address, which then replace
// those of the environment.
//
//   {"s3": {"": {"key_id": .., "secret_key": .., "session_token": .., "region": .., "profile": ..},
//           "s3://bucket/path": {..}},
//    "gs": {"": "PATH OF A JSON FILE"},
//    "as": {"": {"account_str": .., "account_key": ..}}}
//
// Of the names that an address begins with the longest counts.
// Errors: name the file and what is wrong with it, never what stands in it.
#pragma once

#include <optional>
#include <string>

#include "object_store/address.h"
#include "object_store/options.h"

namespace inflight::object_store {

struct CloudCredential {
  // s3
  std::string key_id;
  std::string secret_key;
  std::string session_token;
  std::string region;
  std::string profile;
  // gs
  std::string json_file;
  // as
  std::string account;
  std::string account_key;
};

// None where the variable is not set. kFailedPrecondition where no entry is for the address.
Result<std::optional<CloudCredential>> FindCloudCredential(const Address& address,
                                                           const Environment& environment);

}  // namespace inflight::object_store
