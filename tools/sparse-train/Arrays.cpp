// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads data sets of arrays.

#include "Arrays.h"
#include "Files.h"
#include "support/Error.h"
#include "support/Hash.h"
#include "support/Keys.h"
#include "support/NumpyArray.h"
#include "support/TensorFile.h"

#include <algorithm>
#include <filesystem>

using namespace sparse_opt;
using namespace sparse_opt::train;
namespace fs = std::filesystem;

int64_t ExampleArray::bytesPerExample() const {
  return int64_t(data.size()) / examples();
}

std::string Arrays::nearest(const std::string &name) const {
  std::vector<std::string> names;
  for (const auto &[each, array] : arrays)
    names.push_back(each);
  std::string text;
  for (const std::string &each : nearestFirst(name, names))
    text += (text.empty() ? "" : "', '") + each;
  return text;
}

const ExampleArray *Arrays::find(const std::string &name) const {
  auto found = arrays.find(name);
  return found == arrays.end() ? nullptr : &found->second;
}

uint64_t Arrays::checksum() const {
  std::string sums;
  for (const auto &[name, array] : arrays) {
    sums += name + '\0' + nameOf(array.type);
    for (int64_t extent : array.shape)
      sums += ' ' + std::to_string(extent);
    sums += ' ' + std::to_string(xxh64(array.data)) + '\n';
  }
  return xxh64(sums);
}

void Arrays::add(const std::string &path, const std::string &name,
                 ExampleArray array) {
  if (array.shape.empty() || array.data.empty())
    fail("expected array '", name, "' of '", path,
         "' to have an example in each place of its first dimension, but got ",
         array.shape.empty() ? "a number" : "no elements");
  bool isHeldOut = name.rfind(heldOutPrefix, 0) == 0;
  int64_t &examples = isHeldOut ? heldOut : train;
  if (examples && examples != array.examples())
    fail("expected ", examples, isHeldOut ? " held-out" : "",
         " examples in array '", name, "' of '", path,
         "', as the others have, but got ", array.examples());
  examples = array.examples();
  arrays.emplace(name, std::move(array));
}

Arrays Arrays::read(const std::string &path) {
  Arrays read;
  if (fs::is_directory(path)) {
    std::vector<fs::path> files;
    for (const fs::directory_entry &entry : fs::directory_iterator(path))
      if (entry.path().extension() == ".npy")
        files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    for (const fs::path &file : files) {
      NumpyArray array =
          parseNpy(readFile(file, "array"), "'" + file.string() + "'");
      read.add(path, file.stem(),
               {array.type, std::move(array.shape), std::move(array.data)});
    }
  } else {
    TensorFile file("data set", path);
    for (const auto &entry : file.header().items()) {
      if (entry.key() == "__metadata__")
        continue;
      Tensor tensor = file.read(entry.key());
      read.add(path, tensor.name,
               {tensor.type, tensor.shape, std::string(tensor.data)});
    }
  }
  if (!read.train)
    fail("expected '", path,
         "' to be a safetensors file or a folder with .npy files of examples "
         "to train on, but got none");
  return read;
}
