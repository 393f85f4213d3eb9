// An OpenID provider for tests: oidc-provider with a few people and clients.
//   node provider.mjs PORT BOYD_URL
// POST /test/sign {claims, header}: a JWT signed with its present key.
// POST /test/rotate: another key from now on.
// POST /test/down, /test/up: answer nothing, and answer again.
import { createServer } from 'node:http'
import { createRequire } from 'node:module'
import { pathToFileURL } from 'node:url'
import path from 'node:path'

// Its packages lie in the working directory, not beside this file.
const packages = createRequire(path.join(process.cwd(), 'package.json'))
const load = async (name) => import(pathToFileURL(packages.resolve(name)))
const { Provider, errors } = await load('oidc-provider')
const { generateKeyPair, exportJWK, SignJWT } = await load('jose')

const [port, boyd] = process.argv.slice(2)
const issuer = `http://127.0.0.1:${port}`
const people = {
  ann: { name: 'Ann Example', email: 'ann@example.com', groups: ['oncall'] },
  bob: { name: 'Bob Example', groups: ['oncall', 'leads'] },
  guest: { name: 'A Guest', groups: ['visitors'] },
  trick: { name: 'Ann\u202e\nExample', groups: ['oncall'] },
}
const forBoyd = {
  client_secret: 'secret-of-boyd-0123456789',
  redirect_uris: [`${boyd}/console/oidc/callback`],
  post_logout_redirect_uris: [`${boyd}/console/login?why=left`],
  backchannel_logout_uri: `${boyd}/console/oidc/backchannel-logout`,
  grant_types: ['authorization_code', 'client_credentials'],
}

async function makeProvider() {
  const { privateKey } = await generateKeyPair('RS256', { extractable: true })
  const jwk = { ...(await exportJWK(privateKey)), alg: 'RS256', use: 'sig', kid: `key-${Date.now()}-${Math.random()}` }
  const provider = new Provider(issuer, {
    jwks: { keys: [jwk] },
    clients: [
      { client_id: 'boyd', ...forBoyd },
      { client_id: 'other', ...forBoyd, client_secret: 'secret-of-another-01234' },
    ],
    cookies: { keys: ['only-for-tests'] },
    scopes: ['openid', 'profile', 'email'],
    claims: { openid: ['sub'], profile: ['name', 'groups'], email: ['email'], auth_time: null },
    ttl: { AccessToken: 600, ClientCredentials: 600, IdToken: 600, Grant: 600, Session: 600, Interaction: 600 },
    findAccount: (ctx, sub) => sub in people ? { accountId: sub, claims: () => ({ sub, ...people[sub] }) } : undefined,
    async loadExistingGrant(ctx) {
      const { client, session, params } = ctx.oidc
      const grant = new provider.Grant({ clientId: client.clientId, accountId: session.accountId })
      grant.addOIDCScope(params.scope)
      if (params.resource) grant.addResourceScope(params.resource, 'boyd')
      await grant.save()
      return grant
    },
    extraTokenClaims: async (ctx, token) => token.kind === 'AccessToken'
      ? { groups: people[token.accountId].groups, name: people[token.accountId].name, auth_time: ctx.oidc.entities.AuthorizationCode?.authTime }
      : { groups: ['robots'] },
    // Without its own guard, as Boyd listens on this machine, which may be too busy for its limit of 2.5 s.
    fetch: (url, { dispatcher, signal, ...options }) => globalThis.fetch(url, options),
    features: {
      devInteractions: { enabled: true },
      clientCredentials: { enabled: true },
      backchannelLogout: { enabled: true },
      rpInitiatedLogout: { enabled: true },
      resourceIndicators: {
        enabled: true,
        useGrantedResource: () => true,
        getResourceServerInfo: (ctx, resource) => {
          if (!resource.startsWith('urn:api:')) throw new errors.InvalidTarget()
          return { scope: 'boyd', audience: resource.slice(8), accessTokenFormat: 'jwt', accessTokenTTL: 600 }
        },
      },
    },
  })
  return { answer: provider.callback(), privateKey, kid: jwk.kid }
}

let current = await makeProvider()
let down = false

async function read(request) {
  const parts = []
  for await (const part of request) parts.push(part)
  return parts.length ? JSON.parse(Buffer.concat(parts).toString()) : {}
}

const server = createServer(async (request, response) => {
  if (!request.url.startsWith('/test/')) {
    if (down) return request.socket.destroy()
    return current.answer(request, response)
  }
  const { claims, header } = await read(request)
  let text = ''
  if (request.url === '/test/rotate') current = await makeProvider()
  if (request.url === '/test/down') down = true
  if (request.url === '/test/up') down = false
  if (request.url === '/test/sign') {
    text = await new SignJWT(claims).setProtectedHeader({ alg: 'RS256', kid: current.kid, ...header }).sign(current.privateKey)
  }
  response.end(text)
})
// On a busy machine more than the usual 5 s may pass between two requests of a browser.
server.keepAliveTimeout = 600_000
server.listen(Number(port), '127.0.0.1', () => console.log(`ready ${issuer}`))
