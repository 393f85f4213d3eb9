#!/bin/sh
# Keeps the newest files of a folder: `tidy.sh FOLDER CALL`, where Boyd adds the call.
# It reads a line of JSON and answers with lines of JSON; what it says on stderr is logged.
set -eu
folder=$1 call=$2 limit=3
read -r request

# A number and a plain text of the request; with jq these are `jq .params.keep` and the like.
number() { printf '%s\n' "$request" | sed -n "s/.*\"$1\": \([0-9][0-9]*\).*/\1/p"; }
text() { printf '%s\n' "$request" | sed -n "s/.*\"$1\": \"\([A-Za-z0-9./:_-]*\)\".*/\1/p"; }
newest() { ls -t "$folder"; }
count() { newest | wc -l | tr -d ' '; }

case $call in
observe)
  severity=info
  if [ "$(count)" -gt "$limit" ]; then severity=warning; fi
  echo '{"observation": {"type": "metric", "severity": "'$severity'",' \
    '"data": {"folder": "'"$folder"'", "files": '"$(count)"'}}}'
  echo '{"result": null}'
  ;;
dry_run)
  keep=$(number keep) files=$(count)
  echo '{"result": "would move '$((files > keep ? files - keep : 0))' files out of '"$folder"'"}'
  ;;
execute)
  # Named after the execution: if it has to run again, it goes on in the same folder.
  attic=$folder.$(text execution | tr ':' '-')
  mkdir -p "$attic"
  newest | tail -n +$(($(number keep) + 1)) | while IFS= read -r file; do
    echo "moving $file" >&2
    mv "$folder/$file" "$attic/"
  done
  echo '{"result": {"attic": "'"$attic"'"}}'
  ;;
verify)
  if [ "$(count)" -le "$(number keep)" ]; then effect=true; else effect=false; fi
  echo '{"result": '$effect', "evidence": "'"$(count)"' files are left"}'
  ;;
rollback)
  attic=$(text attic)
  ls "$attic" | while IFS= read -r file; do mv "$attic/$file" "$folder/"; done
  rmdir "$attic"
  echo '{"result": "moved back"}'
  ;;
*)
  echo '{"error": "no such call"}'
  ;;
esac
