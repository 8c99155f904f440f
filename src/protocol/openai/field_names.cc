// SPDX-License-Identifier: Apache-2.0
#include "protocol/openai/field_names.h"

#include <string>

namespace inflight::openai {

Status ByOwnNames(std::span<const FieldName> names, const Status& status) {
  if (status.ok() || status.field().empty()) return status;
  std::string field = status.field();
  for (const FieldName& name : names) {
    const size_t at = field.find(name.chat);
    if (at == std::string::npos || (at > 0 && !name.chat.starts_with('.'))) continue;
    field.replace(at, name.ends ? std::string::npos : name.chat.size(), name.own);
  }
  if (field == status.field()) return status;
  std::string message = status.message();  // begins with the field (inflight/status.h)
  message.replace(0, status.field().size(), field);
  return status.WithField(field).WithMessage(std::move(message));
}

}  // namespace inflight::openai
