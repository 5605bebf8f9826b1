"""Call a function that Numba compiles with cache=True; print whether it was found."""

import json

import numba


@numba.njit(cache=True)
def total(values):
    result = 0.0
    for value in values:
        result += value * value
    return result


answer = total(numba.typed.List([1.0, 2.0, 3.0]))
stats = total.stats
print(json.dumps({"answer": answer, "hits": sum(stats.cache_hits.values()), "misses": sum(stats.cache_misses.values())}))
