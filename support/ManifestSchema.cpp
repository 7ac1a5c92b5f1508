// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The schema of the manifest, and how one is checked against it.

#include "ManifestSchema.h"
#include "ElementType.h"
#include "Json.h"
#include <algorithm>

using namespace sparse_opt;

namespace {
/// What a key holds.
enum class Holds {
  Format,  // "bsr-step"
  Text,    // a string
  Name,    // a string that is not empty
  Hash,    // 16 hexadecimal digits
  Boolean, // true or false
  Number,
  Integer,  // in [least, most]
  Integers, // an array of these
  Texts,    // an array of strings
  Kind,     // one of `bufferKinds`
  Type,     // the name of an element type
  Norm,     // one of `scoreNorms`
  When,     // one of `launchTimes`
  Object,   // with the keys of `members`
  Objects,  // an array of these, each of which is a `noun`
  Counts,   // an object of integers in [least, most] under any keys
  Anything  // an object with any keys
};

enum Need { Required, Optional };

struct Schema;

/// A key of an object.
struct Key {
  const char *name;
  Holds holds;
  Need need = Required;
  int64_t least = 0, most = INT32_MAX;
  const Schema *members = nullptr;
  const char *noun = nullptr;
};

/// The keys of an object.
struct Schema {
  const Key *keys;
  size_t size;

  template <size_t N>
  constexpr Schema(const Key (&keys)[N]) : keys(keys), size(N) {}
};
} // namespace

// test/Docs/check_manifest.py reads these tables: a key is a line.

// clang-format off
static constexpr Key originKeys[] = {
    {"name", Holds::Name},
    {"shape", Holds::Integers, Required, 0, mostManifestBytes},
    {"offsets", Holds::Integers, Required, 0, mostManifestBytes},
    {"sizes", Holds::Integers, Required, 0, mostManifestBytes},
};
static constexpr Schema origin = originKeys;

static constexpr Key bufferKeys[] = {
    {"name", Holds::Name},
    {"kind", Holds::Kind},
    {"role", Holds::Text, Optional},
    {"type", Holds::Type},
    {"shape", Holds::Integers, Required, 0, mostManifestBytes},
    {"whole", Holds::Integers, Optional, 1, mostManifestBytes},
    {"carried", Holds::Boolean},
    {"init", Holds::Text, Optional},
    {"pattern", Holds::Integer, Optional},
    {"arena_offset", Holds::Integer, Optional, 0, mostManifestBytes},
    {"origin", Holds::Object, Optional, 0, 0, &origin},
};
static constexpr Schema buffer = bufferKeys;

static constexpr Key maskKeys[] = {
    {"name", Holds::Name},
    {"type", Holds::Type},
    {"shape", Holds::Integers, Required, 0, mostManifestBytes},
    {"transpose", Holds::Boolean},
    {"origin", Holds::Object, Optional, 0, 0, &origin},
};
static constexpr Schema mask = maskKeys;

static constexpr Key viewKeys[] = {
    {"row_ptr", Holds::Integer},
    {"col_idx", Holds::Integer},
    {"slot", Holds::Integer},
    {"col_ptr", Holds::Integer},
    {"row_idx", Holds::Integer},
    {"slot_t", Holds::Integer},
};
static constexpr Schema views = viewKeys;

static constexpr Key patternKeys[] = {
    {"name", Holds::Name},
    {"shape", Holds::Integers, Required, 1, INT32_MAX},
    {"block", Holds::Integers, Required, 1, INT32_MAX},
    {"slots", Holds::Integer, Required, 1, INT32_MAX},
    {"density", Holds::Number, Optional},
    {"static", Holds::Boolean},
    {"weight", Holds::Integer, Optional},
    {"flops", Holds::Integer, Optional, 0, INT64_MAX},
    {"buffers", Holds::Object, Optional, 0, 0, &views},
    {"row_ptr", Holds::Integers, Optional, INT32_MIN, INT32_MAX},
    {"col_idx", Holds::Integers, Optional, INT32_MIN, INT32_MAX},
    {"masks", Holds::Objects, Optional, 0, 0, &mask, "mask"},
};
static constexpr Schema pattern = patternKeys;

static constexpr Key flopsKeys[] = {
    {"dense", Holds::Integer, Required, 0, INT64_MAX},
    {"scores", Holds::Integer, Required, 0, INT64_MAX},
};
static constexpr Schema flops = flopsKeys;

static constexpr Key kernelsKeys[] = {
    {"functions", Holds::Integer},
    {"launches", Holds::Integer},
};
static constexpr Schema kernels = kernelsKeys;

static constexpr Key mapKeys[] = {
    {"type", Holds::Type},
    {"shape", Holds::Integers, Required, 1, INT32_MAX},
    {"box", Holds::Integers, Required, 1, 256},
    {"swizzle", Holds::Integer, Required, 0, 128},
};
static constexpr Schema map = mapKeys;

static constexpr Key argumentKeys[] = {
    {"buffer", Holds::Integer, Optional},
    {"arena", Holds::Integer, Optional, 0, mostManifestBytes},
    {"number", Holds::Integer, Optional},
    {"map", Holds::Object, Optional, 0, 0, &map},
};
static constexpr Schema argument = argumentKeys;

static constexpr Key launchKeys[] = {
    {"kernel", Holds::Name},
    {"when", Holds::When},
    {"grid", Holds::Integers, Required, 1, INT32_MAX},
    {"block", Holds::Integers, Required, 1, 1024},
    {"cluster", Holds::Integers, Optional, 1, 16},
    {"shared", Holds::Integer, Optional},
    {"arguments", Holds::Objects, Required, 0, 0, &argument, "argument"},
};
static constexpr Schema launch = launchKeys;

static constexpr Key timerKeys[] = {
    {"kernel", Holds::Text},
    {"kind", Holds::Text},
    {"operands", Holds::Text},
    {"flops", Holds::Integer, Required, 0, INT64_MAX},
    {"bytes", Holds::Integer, Required, 0, INT64_MAX},
    {"items", Holds::Integer, Optional, 0, INT64_MAX},
};
static constexpr Schema timer = timerKeys;

static constexpr Key stepKeys[] = {
    {"format", Holds::Format},
    {"version", Holds::Integer, Required, 1, 1},
    {"name", Holds::Text},
    {"target_cpu", Holds::Text},
    {"target_features", Holds::Texts, Optional},
    {"compiler", Holds::Anything, Optional},
    {"code", Holds::Hash, Optional},
    {"arena_bytes", Holds::Integer, Required, 0, mostManifestBytes},
    {"live_bytes", Holds::Integer, Optional, 0, mostManifestBytes},
    {"left_dense", Holds::Integer},
    {"products", Holds::Counts},
    {"flops", Holds::Object, Optional, 0, 0, &flops},
    {"kernels", Holds::Object, Optional, 0, 0, &kernels},
    {"score_norm", Holds::Norm, Optional},
    {"communicates", Holds::Boolean, Optional},
    {"accumulates", Holds::Boolean, Optional},
    {"sharded", Holds::Integer, Optional, 2, INT32_MAX},
    {"stage", Holds::Integer, Optional, 0, INT32_MAX},
    {"stages", Holds::Integer, Optional, 2, INT32_MAX},
    {"replicas", Holds::Boolean, Optional},
    {"micro_batches", Holds::Integer, Optional, 2, INT32_MAX},
    {"buffers", Holds::Objects, Required, 0, 0, &buffer, "buffer"},
    {"patterns", Holds::Objects, Required, 0, 0, &pattern, "pattern"},
    {"timers", Holds::Objects, Optional, 0, 0, &timer, "timer"},
    {"chip", Holds::Name, Optional},
    {"launches", Holds::Objects, Optional, 0, 0, &launch, "launch"},
    {"plan_bytes", Holds::Integer, Optional, 0, mostManifestBytes},
};
static constexpr Schema step = stepKeys;
// clang-format on

static void checkObject(const Json &value, const Schema &schema, int status,
                        const std::string &where);

/// Fails unless `key` of `object` is the name of one of `all`, which `nameOf`
/// names.
template <typename All, typename NameOf>
static void checkName(const JsonObject &object, const char *key, const All &all,
                      NameOf nameOf) {
  std::string text = object.text(key), expected = "one of";
  for (const auto &each : all) {
    if (text == nameOf(each))
      return;
    (expected += ' ') += nameOf(each);
  }
  object.refuse(key, expected);
}

/// Checks what `object`, which `where` names, has under `key`.
static void checkKey(const JsonObject &object, const Key &key, int status,
                     const std::string &where) {
  auto itself = [](const char *name) { return name; };
  switch (key.holds) {
  case Holds::Format:
    if (object.text(key.name) != "bsr-step")
      object.refuse(key.name, "\"bsr-step\"");
    return;
  case Holds::Text:
    object.text(key.name);
    return;
  case Holds::Name:
    if (object.text(key.name).empty())
      object.refuse(key.name, "a name");
    return;
  case Holds::Hash: {
    std::string hash = object.text(key.name);
    if (hash.size() != 16 ||
        hash.find_first_not_of("0123456789abcdef") != hash.npos)
      object.refuse(key.name, "16 hexadecimal digits");
    return;
  }
  case Holds::Boolean:
    object.boolean(key.name);
    return;
  case Holds::Number:
    object.number(key.name);
    return;
  case Holds::Integer:
    object.integer(key.name, key.least, key.most);
    return;
  case Holds::Integers:
    object.integers(key.name, key.least, key.most);
    return;
  case Holds::Texts:
    object.texts(key.name);
    return;
  case Holds::Kind:
    return checkName(object, key.name, bufferKinds, itself);
  case Holds::Type:
    return checkName(object, key.name, elementTypes,
                     [](const auto &type) { return type.name; });
  case Holds::Norm:
    return checkName(object, key.name, scoreNorms, itself);
  case Holds::When:
    return checkName(object, key.name, launchTimes, itself);
  case Holds::Object: {
    const Json &members = object.object(key.name).members();
    return checkObject(members, *key.members, status,
                       "'" + std::string(key.name) + "' of " + where);
  }
  case Holds::Objects: {
    size_t index = 0;
    for (const Json &element : object.array(key.name))
      checkObject(element, *key.members, status,
                  key.noun + (" " + std::to_string(index++)) + " of " + where);
    return;
  }
  case Holds::Counts: {
    JsonObject counts = object.object(key.name);
    for (const auto &count : counts.members().items())
      counts.integer(count.key().c_str(), key.least, key.most);
    return;
  }
  case Holds::Anything:
    object.object(key.name);
    return;
  }
}

/// Checks `value`, which `where` names, against `schema`.
static void checkObject(const Json &value, const Schema &schema, int status,
                        const std::string &where) {
  JsonObject object(value, status, where);
  const Key *end = schema.keys + schema.size;
  for (const Key *key = schema.keys; key != end; ++key)
    if (key->need == Required || object.has(key->name))
      checkKey(object, *key, status, where);
  for (const auto &member : value.items())
    if (std::none_of(schema.keys, end,
                     [&](const Key &key) { return member.key() == key.name; }))
      fail(status, "expected a key of docs/manifest.md in ", where,
           ", but got '", member.key(), "'");
}

void sparse_opt::checkManifest(const Json &manifest, int status,
                               const std::string &where) {
  checkObject(manifest, step, status, where);
}

std::string sparse_opt::findManifestError(std::string_view text,
                                          const std::string &where) {
  try {
    checkManifest(parseJson(text, InvalidArgument, where), InvalidArgument,
                  where);
    return "";
  } catch (const Error &error) {
    return error.sentence;
  }
}
