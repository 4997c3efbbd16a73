#!/usr/bin/env bash
# Everything that needs a GPU, in one call of less than ten minutes.
#
#     scripts/bench/gpu.sh prepare     # where there is a network, same Python version: fetch into wheels/ what it lacks
#     scripts/bench/gpu.sh             # on the GPU machine: tests, training and decoding speed, a training to its BLEU
#     DRY=1 scripts/bench/gpu.sh       # the same steps at toy size on the CPU, to see that the script works
#
# DATA is the folder of Multi30k, PYTHON an interpreter with torch, OUT where logs and the run go.
set -uo pipefail
cd "$(dirname "$0")/../.."

PYTHON=${PYTHON:-python3}
DATA=${DATA:-data/multi30k}
OUT=${OUT:-gpu-results}

# What mt needs but torch, and what its tests need.
mapfile -t NEEDED < <("$PYTHON" -c 'import tomllib
needed = tomllib.load(open("pyproject.toml", "rb"))["project"]["dependencies"]
print(*(one for one in needed if not one.startswith("torch")), "pytest", "hypothesis", sep="\n")')

if [ "${1:-}" = prepare ]; then
    exec "$PYTHON" -m pip download --quiet --only-binary :all: --constraint constraints.txt --dest wheels "${NEEDED[@]}"
fi

DEVICE=cuda PRECISION=bf16 TOKENS=25000 SHAPES="base big" ROUNDS=4 UPDATES=10 STEPS=4500
if [ -n "${DRY:-}" ]; then
    DEVICE=cpu PRECISION=fp32 TOKENS=1024 SHAPES=tiny ROUNDS=1 UPDATES=2 STEPS=20
fi

mkdir -p "$OUT"
if [ -d wheels ]; then
    "$PYTHON" -m pip install --quiet --no-index --find-links wheels "${NEEDED[@]}"
fi
export PYTHONPATH="$PWD/src:${PYTHONPATH:-}"
MT="$PYTHON -m mt"

# phase NAME SECONDS COMMAND...: one step, stopped when it takes too long, its output in a file and on the screen.
# The others run, too, when one fails; the script fails in the end.
failed=()
phase() {
    local name=$1 limit=$2 started=$SECONDS
    shift 2
    echo "== $name: $*"
    timeout --signal=INT --kill-after=20 "$limit" "$@" 2>&1 | tee "$OUT/$name.log"
    local code=${PIPESTATUS[0]}
    echo "== $name: exit $code, $((SECONDS - started)) s"
    if [ "$code" != 0 ]; then failed+=("$name"); fi
}

bench() {
    local name=$1 limit=$2
    shift 2
    phase "$name" "$limit" "$PYTHON" scripts/bench/training.py --data "$DATA" --device $DEVICE --precision $PRECISION \
        --max-tokens $TOKENS --rounds $ROUNDS --updates $UPDATES --warm-up 5 "$@"
}

[ $DEVICE = cpu ] || nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv
"$PYTHON" -c "import torch; print('torch', torch.__version__)"

[ $DEVICE = cpu ] || phase tests 90 "$PYTHON" -m pytest -q -m gpu tests/training/test_gpu.py
bench against-marian 130 --shape $SHAPES --peers "$PYTHON" --only mt marian
bench compiled 80 --shape ${SHAPES%% *} --only mt --compile
PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True bench segments 40 --shape ${SHAPES%% *} --only mt

# Its last table has the scores and the sentences a second of greedy and beam search.
phase train 170 $MT train --config configs/multi30k_en_de_plain.yaml --runs "$OUT/runs" --set data.root="$DATA" \
    --set training.device=$DEVICE --set training.precision=$PRECISION --set training.max_steps=$STEPS \
    --set training.warmup_steps=$((STEPS / 8))

phase decode 50 "$PYTHON" scripts/bench/decoding.py --model "$OUT/runs/multi30k-en-de-plain/model" --device $DEVICE --rounds 2 \
    --singles 20 --source "$DATA/test_2016_flickr.en" --reference "$DATA/test_2016_flickr.de" --peers "$PYTHON"

if [ ${#failed[@]} != 0 ]; then
    echo "failed: ${failed[*]}" >&2
    exit 1
fi
