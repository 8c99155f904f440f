// SPDX-License-Identifier: Apache-2.0
// inflight key: a new key for --api-key-file and --access.
#include <cstdio>
#include <string>

#include "command_line.h"
#include "commands.h"
#include "protocol/kserve/access/keys.h"

namespace inflight::tool {
namespace {

struct KeyOptions {};

const Usage kKeyUsage = {"inflight key",
                         "Prints a new key, which a client sends as 'Authorization: Bearer <key>', "
                         "and the line that\n--api-key-file has for it. --access takes the same "
                         "hexadecimal digits as sha256."};

Status PrintKey(KeyOptions&, std::span<const std::string> positionals) {
  if (!positionals.empty()) return UsageError(kKeyUsage, "no argument is expected");
  const std::string key = kserve::NewKey();
  std::printf("key   %s\nline  sha256:%s\n", key.c_str(),
              kserve::ToHex(kserve::HashKey(key)).c_str());
  return Status::Ok();
}

}  // namespace

int KeyMain(Args args) {
  return RunCommand(args, kKeyUsage, config::Schema<KeyOptions>(), PrintKey, KeyOptions{});
}

Manual KeyManual() { return {kKeyUsage, {}}; }

}  // namespace inflight::tool
