"""Cuts: how clients lie to each other, and whether groups stand out from one continuous cloud.

n clients, P numbers of each. The first half of the evidence is of odd rounds, the second of even rounds, and noise in one says
nothing about noise in the other: products of one half with the other are unbiased, the diagonal included.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import pdist, squareform
from scipy.stats import gumbel_r
from sklearn.metrics import adjusted_rand_score

from fedgwc.core.types import Floats, Ids

MOST_GROUPS = 6  # of one cut; more come from cutting the parts
AXES = (2, 3, 4, 6, 8, 10)  # in which a branch is looked for, if there are three times as many clients
SIMULATED = 99  # clouds; smaller chances are read off a Gumbel curve through their largest deviations
MOST_CLIENTS = 400  # that a cut is made from, those seen most often; others go to the nearest group
CLEARLY_NOT = 0.3  # chance at which no more clouds are simulated
FEWEST = 6  # clouds with a cut of this kind whose parts are large enough: below, it is not judged
INGREDIENTS = 10  # of which simulated clients are mixed
MIXTURES = (0.1, 0.3, 1.0, np.inf)  # Dirichlet: from clumps near a simplex's corners to a Gaussian cloud
AS_CLUMPY = 2.0  # standard deviations by which neighbours may be farther than in the clouds compared with
CROWDING_AXES = 8
HOLDS = 0.8  # agreement (adjusted Rand index) of a cut with what either half makes of the other's


Key = tuple[str, int]  # the kind of a cut and its number of axes
Candidates = Mapping[Key, tuple[float, Ids]]


@dataclass(frozen=True)
class Evidence:
    """What is known of n clients: the means of both halves, and how many visits each is of."""

    means: Floats  # [2, n, P]
    visits: Floats  # [2, n]

    def of(self, rows: Ids) -> Evidence:
        return Evidence(self.means[:, rows], self.visits[:, rows])


@dataclass(frozen=True)
class Cut:
    labels: Ids  # [n] in 0..k - 1
    chance: float  # of a cut so clear without groups
    holds: float  # agreement between the halves, at most 1


def gram(first: Floats, second: Floats) -> Floats:
    """Estimate the inner products [..., n, n] of clients' true positions, without bias.

    Positions are seen from the clients' middle.
    """
    a, b = (x - x.mean(-2, keepdims=True) for x in (first, second))
    product = a @ np.swapaxes(b, -1, -2)
    return np.asarray((product + np.swapaxes(product, -1, -2)) / 2)


def axes(products: Floats) -> tuple[Floats, Floats]:
    """Return the Gram matrix's eigenvalues, largest first, and clients' places on the axes."""
    values, vectors = np.linalg.eigh(products)
    values, vectors = values[..., ::-1], vectors[..., ::-1]
    return values, vectors * np.sqrt(values.clip(min=0))[..., None, :]


def noise(known: Evidence) -> tuple[float, int]:
    """Estimate the variance of one visit, and in how many directions it is spread out."""
    apart = known.means[0] - known.means[1]
    apart = (apart - apart.mean(0)) / np.sqrt((1 / known.visits).sum(0))[:, None]
    n, products = len(apart), apart @ apart.T
    variance = np.trace(products) / max(n - 1, 1)
    across = (products**2).sum() - (products.diagonal() ** 2).sum()
    return float(variance), int(np.clip(variance**2 * n * (n - 1) / max(across, 1e-300), 1, apart.shape[1]))


def best_cut(known: Evidence, smallest: int, rng: np.random.Generator) -> Cut | None:
    """Return the cut that stands out most; None: too few clients, or they do not differ at all.

    Clients with few labels lie in clumps and yet are one continuum. So a cut must stand out from the clumpiest mixtures that
    clients' distances to their nearest neighbours do not rule out. Few clients never rule out the clumpiest.
    """
    n = known.means.shape[1]
    if n < 2 * smallest:
        return None
    values, places = axes(gram(*known.means))
    if values[0] <= 0:
        return None
    seen = dict(_candidates(values, places, smallest))
    if not seen:
        return None
    few = SIMULATED // 4  # they tell how clumpy the cloud is, and whether there is nothing to see
    for sparse in MIXTURES:
        simulated = axes(_clouds(known, values, few, sparse, rng))
        usual = np.array([crowding(*one) for one in zip(*simulated, strict=True)])
        if crowding(values, places) <= usual.mean() + AS_CLUMPY * usual.std():
            break
    clouds = [dict(_candidates(*one, smallest)) for one in zip(*simulated, strict=True)]
    chance, key = _clearest(seen, clouds)
    if not CLEARLY_NOT < chance < 1:  # 1: too few clouds have such a cut
        more = axes(_clouds(known, values, SIMULATED - few, sparse, rng))
        chance, key = _clearest(seen, clouds + [dict(_candidates(*one, smallest)) for one in zip(*more, strict=True)])
    labels = seen[key][1]
    return Cut(labels, chance, agreement(known, labels))


def _clearest(seen: Candidates, clouds: Sequence[Candidates]) -> tuple[float, Key]:
    """Find the cut that deviates most from its like in clouds, and the chance that a cloud's best does so."""
    null = {key: np.array([cloud[key][0] for cloud in clouds if key in cloud]) for key in seen}
    usual = {key: (x.mean(), x.std() + 1e-9) for key, x in null.items() if len(x) >= FEWEST}
    if not usual:
        return 1.0, next(iter(seen))
    every = ([(usual[key][0] - cloud[key][0]) / usual[key][1] for key in usual if key in cloud] for cloud in clouds)
    deviation, key = max(((usual[key][0] - seen[key][0]) / usual[key][1], key) for key in usual)
    return float(gumbel_r.sf(deviation, *gumbel_r.fit([max(each) for each in every if each]))), key


def _clouds(known: Evidence, values: Floats, many: int, sparse: float, rng: np.random.Generator) -> Floats:
    """Simulate Gram matrices of one cloud without groups, as wide and as noisy as what was seen."""
    n = len(values)
    variance, directions = noise(known)
    # Of noise alone, eigenvalues come in pairs of either sign; what is left of a pair is the clients' own.
    own = (values[: n // 2] + values[::-1][: n // 2]).clip(min=0) / (n - 1)
    r = len(own)
    cloud = mixtures(many, n, r, sparse, rng) * np.sqrt(own)
    spread = np.sqrt(variance / directions / known.visits)  # [2, n] of the noise along one direction
    halves = (cloud + rng.standard_normal(cloud.shape) * half[:, None] for half in spread)
    # Noise in all the other directions: a sum of so many products is normal.
    rest = rng.standard_normal((many, n, n)) * np.sqrt(max(directions - r, 0)) * spread[0][:, None] * spread[1]
    return np.asarray(gram(*halves) + (rest + np.swapaxes(rest, -1, -2)) / 2)


def mixtures(many: int, n: int, r: int, sparse: float, rng: np.random.Generator) -> Floats:
    """Place clients [many, n, r] by their Dirichlet mix of ingredients, with variance 1 along each of r axes.

    Beyond as many axes as ingredients, places are normal.
    """
    rest = rng.standard_normal((many, n, r if np.isinf(sparse) else max(r - INGREDIENTS, 0)))
    if np.isinf(sparse):
        return np.asarray(rest)
    mixed = rng.dirichlet(np.full(INGREDIENTS, sparse), (many, n)) - 1 / INGREDIENTS
    mixed *= INGREDIENTS * np.sqrt((1 + INGREDIENTS * sparse) / (INGREDIENTS - 1))
    turns = np.linalg.qr(rng.standard_normal((many, INGREDIENTS, INGREDIENTS)))[0]
    return np.asarray(np.concatenate([mixed @ turns, rest], 2)[:, :, :r])


def crowding(values: Floats, places: Floats) -> float:
    """Return the log of how far a client's nearest neighbour is, on average, in axes brought to one scale.

    The nearer, the clumpier.
    """
    r = max(1, min(CROWDING_AXES, len(values) // 3 - 1, int((values > 1e-9 * values[0]).sum())))
    distances = squareform(pdist(places[:, :r] / np.sqrt(values[:r])))
    np.fill_diagonal(distances, np.inf)
    return float(np.log(distances.min(1).mean() + 1e-9))


def _candidates(values: Floats, places: Floats, smallest: int) -> Iterator[tuple[Key, tuple[float, Ids]]]:
    """Yield cuts with a number each, the smaller the clearer: the log of what they leave unexplained.

    "parts": Ward's k groups in the leading k - 1 axes; the share of spread within them. "rest": one branch of Ward's tree in r
    axes brought to one scale, against all others; the share of its indicator that the axes do not explain. Groups are rarely
    what clients differ by most: a branch may stand out along an axis of little spread.
    """
    n, positive = len(values), int((values > 1e-9 * values[0]).sum())
    most = min(positive, max(1, n // 3 - 1))
    for r in range(1, min(MOST_GROUPS - 1, most) + 1):
        x = places[:, :r]
        labels = _branches(linkage(x, "ward"), r + 1)[: r + 1].argmax(0)
        sizes = np.bincount(labels)
        if len(sizes) == r + 1 and sizes.min() >= smallest:
            means = np.stack([np.bincount(labels, column) for column in x.T], 1) / sizes[:, None]
            yield ("parts", r), (float(np.log(((x - means[labels]) ** 2).sum() / (x**2).sum() + 1e-9)), labels)
    for r in (r for r in AXES if r <= most):
        unit = places[:, :r] / np.sqrt(values[:r])
        branches = _branches(linkage(unit, "ward"), min(MOST_GROUPS, n - 1))
        count = branches.sum(1)
        branches = branches[(count >= max(smallest, 2)) & (n - count >= max(smallest, 2))]
        if len(branches):
            centred = branches - branches.mean(1, keepdims=True)
            left = 1 - ((centred @ unit) ** 2).sum(1) / (centred**2).sum(1)
            yield ("rest", r), (float(np.log(left.min().clip(min=0) + 1e-9)), branches[left.argmin()].astype(np.int64))


def _branches(tree: Floats, k: int) -> Floats:
    """Return the members [2 k - 2, n] of the branches that the last k - 1 merges joined; the first k make up everybody."""
    n = len(tree) + 1
    merges = tree[:, :2].astype(np.int64).tolist()
    members = [1 << i for i in range(n)]  # as bits: a thousand trees are taken apart at every look
    for one, other in merges:
        members.append(members[one] | members[other])
    joined = sorted(i for pair in merges[n - k :] for i in pair)
    packed = b"".join(members[i].to_bytes((n + 7) // 8, "little") for i in joined)
    bits = np.frombuffer(packed, np.uint8).reshape(len(joined), -1)
    return np.unpackbits(bits, axis=1, count=n, bitorder="little").astype(np.float64)


def agreement(known: Evidence, labels: Ids) -> float:
    """Compare the cut with what the centres of one half make of the other half's clients."""
    halves = [nearest(known.means[1 - h], centres(known.means[h], labels)) for h in (0, 1)]
    return float(np.mean([adjusted_rand_score(labels, other) for other in halves]))


def centres(means: Floats, labels: Ids) -> Floats:
    return np.stack([means[labels == j].mean(0) for j in range(labels.max() + 1)])


def nearest(means: Floats, middle: Floats) -> Ids:
    return np.asarray((-2 * means @ middle.T + (middle**2).sum(1)).argmin(1), np.int64)


def tree_of_cuts(known: Evidence, smallest: int, level: float, rng: np.random.Generator) -> tuple[Ids, Floats]:
    """Cut, and cut the parts, while cuts stand out and hold.

    Labels [n], and for each part the chance of the cut that made it. Without any cut all labels are 0. Parts are asked only
    where the whole was cut, so a federation without groups is cut no more often than at `level`.
    """
    labels, chances, todo = np.zeros(known.means.shape[1], np.int64), [1.0], [np.arange(known.means.shape[1])]
    while todo:
        part = todo.pop()
        cut = best_cut(known.of(part), smallest, rng)
        if cut is None or cut.chance > level or cut.holds < HOLDS:
            continue
        k, kept = cut.labels.max() + 1, labels[part[0]]
        labels[part] = np.where(cut.labels == 0, kept, len(chances) - 1 + cut.labels)
        chances[kept] = cut.chance
        chances += [cut.chance] * (k - 1)
        todo += [part[cut.labels == j] for j in range(k)]
    _, first = np.unique(labels, return_index=True)
    order = first.argsort()  # parts are numbered by their first client, so that equal cuts have equal labels
    return order.argsort()[labels], np.array(chances)[order]
