// SPDX-License-Identifier: Apache-2.0
#include "access_options.h"

namespace inflight::tool {
namespace {

using config::OneOf;
using config::Range;

void AddAccess(config::Schema<ServeOptions>& schema) {
  schema.Section("Access");
  schema.Add(
      "access", [](ServeOptions& o) -> auto& { return o.access.keys.access; },
      "JSON file of keys with their roles and rates, for every front end; read again when it "
      "changes.");
  schema.Add(
      "api_key_file", [](ServeOptions& o) -> auto& { return o.access.keys.api_keys; },
      "File of keys that may infer and read metrics, a line each: the key, or sha256:<hex>. "
      "`inflight key` makes one.");
  schema.Add(
      "api_key", [](ServeOptions& o) -> auto& { return o.access.keys.given; },
      "Such a key itself, repeatable. Other users of the machine may see it in the list of "
      "processes before the server has wiped it there, and the shell's history keeps it: a file "
      "is safer.");
}

void AddAdministration(config::Schema<ServeOptions>& schema) {
  schema.Section("Administration");
  schema.Add(
      "admin_port", [](ServeOptions& o) -> auto& { return o.admin_port; },
      "Port that answers all that the HTTP port does, by its limits and its TLS; the index, load "
      "and unload of models, trace and log settings and profiles are then answered there alone. 0 "
      "picks a free one.",
      Range(0, 65535));
  schema.Add(
      "admin_address", [](ServeOptions& o) -> auto& { return o.admin_address; },
      "Address of --admin-port; 127.0.0.1 unless it is given.");
  schema.Add(
      "admin_socket", [](ServeOptions& o) -> auto& { return o.admin_socket; },
      "Unix socket for the same, of mode 0600: there no key and no header is asked for.");
}

void AddSandbox(config::Schema<ServeOptions>& schema) {
  schema.Section("Sandbox");
  schema.Add(
      "sandbox", [](ServeOptions& o) -> auto& { return o.sandbox; },
      "The process keeps to the files that its options name, and to the system calls of a server "
      "(docs/production.md); `on` refuses to start where the kernel cannot, `best-effort` takes "
      "what it has.",
      OneOf({"off", "on", "best-effort"}));
  schema.Add(
      "sandbox_read", [](ServeOptions& o) -> auto& { return o.sandbox_read; },
      "File or directory that the sandbox leaves readable besides models: engines and tokenizers "
      "that a configuration names elsewhere.");
}

}  // namespace

void AddAccessOptions(config::Schema<ServeOptions>& schema) {
  AddAccess(schema);
  AddAdministration(schema);
  AddSandbox(schema);
}

}  // namespace inflight::tool
