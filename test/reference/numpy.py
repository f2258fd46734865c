"""Writes test/reference/numpy/*.np[yz], which test/io/npy.cpp reads: python3 test/reference/numpy.py"""
import os
import sys

sys.path.pop(0)  # this file is called numpy, too
import numpy as np

folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "numpy")
os.makedirs(folder, exist_ok=True)


def save(name, array):
    np.save(os.path.join(folder, name + ".npy"), array)


grid = np.arange(6).reshape(2, 3) - 2
for name in ("i1", "i2", "i4", "i8", "f2", "f4", "f8"):
    save(name, grid.astype("<" + name))
for name in ("i2", "i4", "f8"):
    save(name + "_big", grid.astype(">" + name))
save("f4_fortran", np.asfortranarray(grid.astype("<f4")))
for name in ("u1", "u2", "u4", "u8"):
    save(name, (grid + 250).astype("<" + name))
save("b1", grid > 0)
save("scalar", np.float32(2.5))
save("empty", np.zeros((0, 3), "<f8"))
save("complex", np.zeros(1, "<c16"))
save("text", np.array(["ab"]))
save("records", np.zeros(1, [("a", "<f4"), ("b", "<i4")]))
with open(os.path.join(folder, "version2.npy"), "wb") as file:
    np.lib.format.write_array(file, np.array([1, 2, 3]), version=(2, 0))
arrays = {"x": np.arange(1000, dtype="f4").reshape(10, 100), "ünï": np.array([1, 2]), "none": np.zeros(0)}
np.savez(os.path.join(folder, "stored.npz"), **arrays)
np.savez_compressed(os.path.join(folder, "deflated.npz"), **arrays)
