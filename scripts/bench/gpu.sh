#!/usr/bin/env bash
# All figures that need a GPU, in one call of at most nine minutes, on a machine without a network.
#
#     scripts/bench/gpu.sh prepare     # where there is a network: fetch what such a machine lacks into wheels/ (3 MB)
#     scripts/bench/gpu.sh             # on the GPU machine: tests, speed, a kernel profile, a training to its BLEU
#     DRY=1 scripts/bench/gpu.sh       # the same at toy size on the CPU, to see that the script works
#     DRY=quick scripts/bench/gpu.sh   # without the steps and searches that repeat others
#     ONLY="base big" scripts/bench/gpu.sh   # these steps; `decode` needs `train`
#
# DATA is the folder of Multi30k, PYTHON an interpreter of version 3.12 with torch, OUT where the eight logs go.
# Git ignores data/ and wheels/: where only tracked files are copied to the GPU machine, name both as well.
set -uo pipefail
cd "$(dirname "$0")/../.."

PYTHON=${PYTHON:-python3}
DATA=${DATA:-data/multi30k}
OUT=${OUT:-gpu-results}

if [ "${1:-}" = prepare ]; then
    # The versions that go together are constraints.txt's. The rest of mt's dependencies is there, or `mt train` and the
    # tests do without: datasets, ctranslate2, backports.zstd, sentencex.
    if ! "$PYTHON" -m pip download --quiet --no-deps --python-version 3.12 --only-binary :all: --dest wheels \
        --constraint constraints.txt pydantic pydantic-core annotated-types typing-extensions typing-inspection; then
        echo "gpu.sh: pip could not fetch the wheels" >&2
        exit 1
    fi
    exit 0
fi

DEVICE=cuda PRECISION=bf16 TOKENS=25000 SWEEP="8000 2000" BASE=base BIG=big VOCAB=32000 UPDATES=17 ROUNDS=4
MINE=("mt" "mt compiled") SMALL=("mt graphs") TRAIN=4096 STEPS=2250 SENTENCES=500 MATRICES="4096 8192 16384"
TOY=() BEAMS="5 1"
if [ -n "${DRY:-}" ]; then
    DEVICE=cpu PRECISION=fp32 TOKENS=600 SWEEP=300 BASE=tiny BIG=tiny VOCAB=400 UPDATES=2 ROUNDS=1
    MINE=("mt") SMALL=() TRAIN=600 STEPS=5 SENTENCES=4 MATRICES=256
    for key in model.{d_model=32,d_ff=64,encoder_layers=1,decoder_layers=1} decoding.max_length=12; do
        TOY+=(--set "$key")
    done
    [ "$DRY" != quick ] || BEAMS=5
fi

mkdir -p "$OUT"
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT
export PYTHONPATH="$PWD/src${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
export TORCHINDUCTOR_CACHE_DIR="${TORCHINDUCTOR_CACHE_DIR:-$WORK/inductor}"
if compgen -G "wheels/*.whl" >/dev/null && [ $DEVICE = cuda ]; then
    "$PYTHON" -m pip install --quiet --no-index --no-deps --no-compile --target "$WORK/site" wheels/*.whl || exit 1
    PYTHONPATH="$PYTHONPATH:$WORK/site"
fi

# phase NAME SECONDS COMMAND...: one step, stopped when it takes too long, its output in a file and on the screen.
# The others run, too, when one fails; the script fails in the end. The limits add up to 505 seconds.
failed=()
phase() {
    local name=$1 limit=$2 started=$SECONDS
    shift 2
    [ "${DRY:-}" != quick ] || [[ $name != @(big|sweep) ]] || return 0
    [ -z "${ONLY:-}" ] || [[ " $ONLY " == *" $name "* ]] || return 0
    [ -z "${DRY:-}" ] || limit=$((5 * limit))  # a CPU may be slow, or busy with other tests
    echo "== $name: $*"
    timeout --signal=INT --kill-after=3 "$limit" "$@" 2>&1 | tee "$OUT/$name.log"
    local code=${PIPESTATUS[0]}
    echo "== $name: exit $code, $((SECONDS - started)) s"
    if [ "$code" != 0 ]; then failed+=("$name"); fi
}

# speed NAME SECONDS SHAPE OPTIONS...: training speed on batches that repeat, the first time not counted.
speed() {
    local name=$1 limit=$2 shape=$3
    shift 3
    phase "$name" "$limit" "$PYTHON" scripts/bench/training.py --data "$DATA" --device $DEVICE --precision $PRECISION \
        --vocab $VOCAB --repeat --matrices $MATRICES --updates $UPDATES --rounds $ROUNDS --shape "$shape" "$@"
}

{
    date --utc
    [ $DEVICE = cpu ] || nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv
    "$PYTHON" -c "import torch; print('torch', torch.__version__)"
} 2>&1 | tee "$OUT/machine.log"

# In parallel if pytest-xdist is installed: most of the tests' time goes to compiling on the CPU.
SIDE_BY_SIDE=()
if "$PYTHON" -c "import xdist" 2>/dev/null; then SIDE_BY_SIDE=(-n 6); fi
phase tests 85 "$PYTHON" -m pytest -q -m gpu -p no:cacheprovider --show-capture=no --durations=8 "${SIDE_BY_SIDE[@]}" \
    tests/training/test_gpu.py tests/gpu/test_cuda_graphs.py tests/gpu/test_loss_kernel.py \
    tests/model/test_packed_attention.py
speed base 95 $BASE --max-tokens $TOKENS --only "${MINE[@]}" marian --peers "$PYTHON"
speed big 75 $BIG --max-tokens $TOKENS --only "${MINE[@]}" marian --peers "$PYTHON"
speed sweep 85 $BASE --max-tokens $SWEEP --only "${MINE[@]}" "${SMALL[@]}"
speed profile 45 $BASE --max-tokens $TOKENS --profile --warm-up $UPDATES --only "${MINE[@]}"

# Its last table has the scores. Compiling a model that small takes longer than it saves.
phase train 70 "$PYTHON" -m mt train --config configs/multi30k_en_de_plain.yaml --runs "$WORK/runs" \
    --set data.root="$DATA" --set training.device=$DEVICE --set training.precision=$PRECISION \
    --set training.max_tokens=$TRAIN --set training.max_steps=$STEPS --set training.warmup_steps=$((STEPS / 8)) \
    --set training.validate_every=$((STEPS / 5)) --set training.compile=false "${TOY[@]}"

phase decode 50 "$PYTHON" scripts/bench/decoding.py --model "$WORK/runs/multi30k-en-de-plain/model" --device $DEVICE \
    --rounds 2 --batch 64 --beam $BEAMS --sentences $SENTENCES --source "$DATA/test_2016_flickr.en" \
    --reference "$DATA/test_2016_flickr.de" --peers "$PYTHON" \
    --only "mt torch" "mt torch float32" "mt torch bfloat16" "mt graphs bfloat16" transformers

if [ ${#failed[@]} != 0 ]; then
    echo "failed: ${failed[*]}" >&2
    exit 1
fi
