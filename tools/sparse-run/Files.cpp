// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads and writes arrays.

#include "Files.h"
#include "Elements.h"
#include "support/Error.h"
#include "support/File.h"
#include "support/NumpyArray.h"
#include "support/TensorFile.h"

#include <filesystem>

using namespace sparse_opt;
using namespace tools;
namespace fs = std::filesystem;

static NamedArray makeArray(ElementType type, std::vector<int64_t> shape,
                            std::string_view data) {
  NamedArray made;
  made.kind = isFloat(type)             ? NamedArray::Floats
              : type == ElementType::I1 ? NamedArray::Booleans
                                        : NamedArray::Integers;
  made.array.shape = std::move(shape);
  made.array.elements.reserve(data.size() / size_t(bytesOf(type)));
  for (size_t i = 0, end = data.size() / size_t(bytesOf(type)); i < end; ++i)
    made.array.elements.push_back(getNumber(type, data, i));
  return made;
}

static void addNpy(const fs::path &path, NamedArrays &arrays) {
  NumpyArray array = parseNpy(readFile(path), "'" + path.string() + "'");
  arrays.insert_or_assign(
      path.stem(), makeArray(array.type, std::move(array.shape), array.data));
}

std::string tools::readArrays(const std::string &path, NamedArrays &arrays) {
  try {
    if (fs::is_directory(path)) {
      size_t before = arrays.size();
      for (const fs::directory_entry &entry : fs::directory_iterator(path))
        if (entry.path().extension() == ".npy")
          addNpy(entry.path(), arrays);
      if (arrays.size() == before)
        fail("expected .npy files in '", path, "', but got none");
    } else if (fs::path(path).extension() == ".npy") {
      addNpy(path, arrays);
    } else {
      TensorFile file("values", path);
      for (const auto &entry : file.header().items())
        if (entry.key() != "__metadata__") {
          Tensor tensor = file.read(entry.key());
          arrays.insert_or_assign(
              tensor.name, makeArray(tensor.type, tensor.shape, tensor.data));
        }
    }
    return "";
  } catch (const std::exception &error) {
    return error.what();
  }
}

/// The bytes of the elements of `array`, as a safetensors file has them.
static std::string getBytes(const NamedArray &array) {
  const std::vector<Number> &elements = array.array.elements;
  if (array.kind != NamedArray::Booleans)
    return std::string(reinterpret_cast<const char *>(elements.data()),
                       elements.size() * sizeof(Number));
  std::string bytes;
  for (Number element : elements)
    bytes += char(element.integer);
  return bytes;
}

std::string tools::writeArrays(const std::string &path,
                               const NamedArrays &arrays) {
  try {
    std::vector<Tensor> tensors;
    for (const auto &[name, array] : arrays) {
      ElementType type = array.kind == NamedArray::Floats     ? ElementType::F64
                         : array.kind == NamedArray::Integers ? ElementType::I64
                                                              : ElementType::I1;
      const NamedArray &source = array;
      tensors.push_back(
          {name, type, array.array.shape, {}, [&source](const Sink &sink) {
             sink(getBytes(source));
           }});
    }
    writeTensors(path, OrderedJson::object(), std::move(tensors));
    return "";
  } catch (const std::exception &error) {
    return error.what();
  }
}
