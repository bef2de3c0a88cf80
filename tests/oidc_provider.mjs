// A provider of OpenID Connect. Its clients of groups get access tokens as JSON Web Tokens, for one audience; at
// its clients of a page people sign in by the name of a group, with any password.
// Arguments: a port, and a file with the private keys as a JSON Web Key Set.
import { readFileSync } from 'node:fs';
import { Provider } from 'oidc-provider';

const [port, keys] = process.argv.slice(2);
const groups = ['readers', 'judges', 'curators', 'admins', 'auditors', 'strangers'];
// A native client may come from any port of this machine.
const page = {
  application_type: 'native',
  grant_types: ['authorization_code'],
  redirect_uris: ['http://localhost/v1/session/callback', 'http://127.0.0.1/v1/session/callback'],
  response_types: ['code'],
};
const provider = new Provider(`http://127.0.0.1:${port}`, {
  jwks: JSON.parse(readFileSync(keys, 'utf8')),
  clients: [
    ...groups.map((name) => ({
      client_id: name,
      client_secret: `the secret of ${name}`,
      grant_types: ['client_credentials'],
      redirect_uris: [],
      response_types: [],
    })),
    { ...page, client_id: 'public page', token_endpoint_auth_method: 'none' },
    { ...page, client_id: 'page: with a secret', client_secret: 'a secret, with: % signs & more' },
  ],
  claims: { openid: ['sub'], profile: ['preferred_username', 'groups'] },
  conformIdTokenClaims: false,
  findAccount: (_, id) => ({
    accountId: id,
    claims: () => ({ sub: id, preferred_username: `Dr ${id}`, groups: [id] }),
  }),
  extraTokenClaims: (_, token) => ({ groups: [token.clientId] }),
  features: {
    clientCredentials: { enabled: true },
    devInteractions: { enabled: true },
    resourceIndicators: {
      enabled: true,
      getResourceServerInfo: (_, audience) => ({
        scope: '', audience, accessTokenFormat: 'jwt', accessTokenTTL: 3600,
      }),
    },
  },
});
provider.listen(Number(port), '127.0.0.1', () => console.log('ready'));
