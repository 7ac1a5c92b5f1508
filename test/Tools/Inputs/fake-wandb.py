# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# A client of W&B that prints what it is given.


class Image:
    def __init__(self, grey):
        self.text = f"{grey.shape[1]}x{grey.shape[0]} stored {(grey == 0).mean():.2f}"


class Run:
    class summary:
        update = staticmethod(lambda values: print("summary", values, flush=True))

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def log(self, values, step):
        numbers = sorted(f"{k}={v:g}" for k, v in values.items() if not isinstance(v, Image))
        images = [f"image {k.split('/')[1]} {v.text}" for k, v in values.items() if isinstance(v, Image)]
        print(step, *sorted(numbers, key=lambda n: n.split("=")[0].split("/")), *images, flush=True)


def init(project, name, dir, config, mode):
    print("init", name, mode, config, flush=True)
    return Run()
