// A program that reads and writes image files.
#include <reel/image.h>
#include <reel/reel.h>

#include <cstdio>
#include <filesystem>

int main() {
  const std::filesystem::path file = std::filesystem::temp_directory_path() / "reel-consumer.png";
  const reel::Tensor image = reel::randint(256, {3, 4, 5}, {.dtype = reel::kUInt8});
  reel::image::write_image(image, file);
  const bool same = reel::equal(reel::image::read_image(file), image);
  std::filesystem::remove(file);
  std::puts(same ? "image: written and read" : "image: other pixels were read");
  return same ? 0 : 1;
}
