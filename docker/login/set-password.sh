#!/bin/bash
# Gives a user of the realm `clinic` a first password, which the person changes at the first sign-in: set-password.sh USER
set -euo pipefail
user=${1:?name a user of the realm, such as reader}
read -rsp "First password of $user: " password
echo
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
kcadm=/opt/keycloak/bin/kcadm.sh
"$kcadm" config credentials --config "$work/kcadm.config" --server http://127.0.0.1:8080 --realm master \
    --user admin --password "$(</run/secrets/login-admin-password)"
"$kcadm" set-password --config "$work/kcadm.config" --target-realm clinic --username "$user" \
    --new-password "$password" --temporary
