import numpy as np

from foci.data.images.features import ImageFeatures
from foci.tasks.caption.neighbors import keep_neighbors, nearest_captions


def test_similar_features_by_loops():
    chance = np.random.default_rng(0)
    train, test = (chance.normal(size=(count, 2, 3, 7)).astype(np.float16) for count in (11, 5))
    kept = keep_neighbors(ImageFeatures(train, range(11), range(11)), [str(number) for number in range(11)])
    for one, caption_of in zip(test, nearest_captions(ImageFeatures(test, range(5), range(5)), kept)):
        means = [other.astype(float).mean(axis=(0, 1)) for other in (one, *train)]
        cosines = [means[0] @ other / np.linalg.norm(other) for other in means[1:]]
        assert int(caption_of) == int(np.argmax(cosines))
