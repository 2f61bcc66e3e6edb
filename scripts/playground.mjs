// Tests the page of the example `playground` in a headless Chromium, or takes its picture. scripts/slow playground runs it.
//
//   node scripts/playground.mjs [--picture docs/playground.png]
import assert from 'node:assert/strict'
import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'

const require = createRequire(resolve('target/playground/tools.js'))
const { chromium } = require('playwright-core')
const axe = readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8')
const FLAGS = ['--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
  '--disable-component-update', '--disable-sync']
const PATIENCE = 60_000
const SHORT = { seconds: 3, window: 500, limit: 5, burst: 3, queue: 3, rate: 20, work: 20 }

// What cargo built: the example, and the crates against which the page's Rust is compiled.
const built = execFileSync('cargo', ['build', '--locked', '--example', 'playground', '--message-format=json'],
  { maxBuffer: 1 << 28, stdio: ['ignore', 'pipe', 'inherit'] })
const artifacts = String(built).split('\n').filter(Boolean).map((line) => JSON.parse(line))
const program = artifacts.find((artifact) => artifact.target?.name === 'playground' && artifact.executable).executable
const crate = (name) => artifacts.find((artifact) => artifact.target?.name === name && artifact.target.kind.includes('lib'))
  .filenames.find((file) => file.endsWith('.rlib'))

const processes = []
function run(command, args) {
  const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'inherit'] })
  processes.push(child)
  return child
}

async function serve(...args) {
  const child = run(program, ['--addr', '127.0.0.1:0', ...args])
  const [line] = await once(child.stdout, 'data', { signal: AbortSignal.timeout(PATIENCE) })
  return { child, url: `${/http:[^,]+/.exec(String(line))[0]}/` }
}

async function redis() {
  const free = createServer().listen(0, '127.0.0.1')
  await once(free, 'listening')
  const { port } = free.address()
  free.close()
  await once(free, 'close')
  const child = run('redis-server', ['--port', port, '--bind', '127.0.0.1', '--save', '', '--dir', tmpdir()])
  for await (const text of child.stdout) if (String(text).includes('Ready to accept connections')) break
  child.stdout.resume()
  return `redis://127.0.0.1:${port}`
}

const browser = await chromium.launch({ executablePath: '/usr/bin/chromium', args: FLAGS })

/** Opens the page. What its console says, and where its requests go, is checked when it is closed. */
async function open(url, options = {}, expected = []) {
  const page = await browser.newPage({ viewport: { width: 1280, height: 900 }, ...options })
  page.setDefaultTimeout(PATIENCE)
  const wrong = []
  page.on('console', (message) => {
    const text = message.text()
    if (!expected.some((part) => text.includes(part))) wrong.push(text)
  })
  page.on('pageerror', (error) => wrong.push(String(error)))
  page.on('request', (request) => {
    if (!request.url().startsWith(url) && !request.url().startsWith('data:')) wrong.push(request.url())
  })
  await page.goto(url)
  await page.waitForSelector('article')
  return { page, end: async () => { await page.close(); assert.deepEqual(wrong, []) } }
}

async function fill(page, values) {
  for (const [name, value] of Object.entries(values)) {
    if (name === 'pattern') await page.selectOption('[name=pattern]', value)
    else await page.fill(`[name=${name}]`, String(value))
  }
}

const status = (page) => page.textContent('#status')
const settled = (page) => page.waitForFunction(() => document.getElementById('run').textContent === 'Run')

/** Returns the rows of the table, by algorithm and column. */
async function numbers(page) {
  return page.evaluate(() => {
    const columns = [...document.querySelectorAll('#columns th')].map((cell) => cell.textContent)
    return Object.fromEntries([...document.querySelectorAll('#rows tr')].map((row) =>
      [row.cells[0].textContent, Object.fromEntries([...row.cells].slice(1).map((cell, index) =>
        [columns[index + 1], parseInt(cell.textContent)]))]))
  })
}

async function counted(page) {
  await settled(page)
  assert.equal(await status(page), 'Done: the server counted the same.')
  const rows = await numbers(page)
  for (const [name, row] of Object.entries(rows)) {
    assert.equal(row.allowed, row['server allowed'], name)
    assert.equal(row.denied, row['server denied'], name)
    assert.equal(row.failed, 0, name)
    assert.ok(row.allowed > 0, name)
  }
  return rows
}

async function accessible(page, where) {
  await page.evaluate(axe)
  const { passes, violations } = await page.evaluate('axe.run()')
  assert.ok(passes.some(({ id }) => id === 'color-contrast'), where)
  assert.deepEqual(violations.map(({ id, nodes }) => [id, nodes.map((node) => node.html)]), [], where)
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), `${where} fits`)
}

const tests = {
  async 'each algorithm and pattern counts as the server does, in memory and in Redis'() {
    for (const args of [[], ['--redis', await redis()]]) {
      const { url } = await serve(...args)
      const { page, end } = await open(url)
      for (const pattern of ['steady', 'bursts', 'ramp', 'edge']) {
        await fill(page, { ...SHORT, pattern })
        await page.click('#run')
        const rows = await counted(page)
        assert.equal(Object.keys(rows).length, 8)
        // While Redis is late, a local store counts for itself.
        const log = rows['Sliding log']
        const windows = SHORT.seconds * 1000 / SHORT.window + 1
        assert.ok(log.allowed <= SHORT.limit * windows * (log['by fallback'] ? 2 : 1), `${log.allowed} in the log`)
        assert.ok(rows['Leaky bucket'].denied > 0)
        if (pattern === 'edge') assert.ok(rows['Fixed window']['most at a time'] > SHORT.limit, 'both sides of an edge')
      }
      await end()
    }
  },

  async 'the Rust and the TOML on the page are the same policy'() {
    const { url } = await serve()
    const { page, end } = await open(url)
    const texts = []
    for (const values of [{ cost: 1 }, { limit: 1000, window: 60_000, burst: 7, queue: 100, cost: 3 }]) {
      await fill(page, values)
      // It holds one unit.
      if (values.cost > 1) await page.uncheck('[value=leaky_bucket]')
      const cost = `cost = ${values.cost}\n`
      await page.waitForFunction((cost) => [...document.querySelectorAll('.toml')].every((pre) => pre.textContent.includes(cost)), cost)
      texts.push(...await page.$$eval('article', (cards) => cards.map((card) =>
        [card.querySelector('.rust').textContent, card.querySelector('.toml').textContent])))
    }
    assert.equal(texts.length, 15)
    const tests = texts.map(([rust, toml]) => `{\n${rust}
      let config = tollgate_config::Config::from_toml(r#"${toml}"#).unwrap();
      let read = config.layer(tollgate::MemoryStore::new()).unwrap();
      assert_eq!(explain(read), explain(layer));\n}`)
    const folder = mkdtempSync(join(tmpdir(), 'playground-'))
    writeFileSync(join(folder, 'texts.rs'), `
      fn explain(layer: tollgate::RateLimitLayer) -> String {
        let (parts, ()) = http::Request::builder().header("x-api-key", "ada").body(()).unwrap().into_parts();
        let live = layer.live();
        format!("{:?} {:?}", live.explain(&parts), live.policies())
      }
      fn main() {\n${tests.join('\n')}\n}`)
    const crates = ['tollgate', 'tollgate_config', 'http'].map((name) => `--extern=${name}=${crate(name)}`)
    execFileSync('rustc', ['--edition=2024', '-Dwarnings', ...crates, '-Ldependency=target/debug/deps', '-o', join(folder, 'texts'),
      join(folder, 'texts.rs')], { stdio: 'inherit' })
    execFileSync(join(folder, 'texts'), { stdio: 'inherit' })
    rmSync(folder, { recursive: true })
    await end()
  },

  async 'axe finds nothing, in light and dark, on a phone and a desktop'() {
    const { url } = await serve()
    for (const colorScheme of ['light', 'dark']) {
      for (const width of [360, 1280]) {
        const { page, end } = await open(url, { colorScheme, viewport: { width, height: 800 }, reducedMotion: 'reduce' })
        await accessible(page, `${colorScheme}, ${width} px, before a run`)
        await fill(page, SHORT)
        await page.click('#run')
        await counted(page)
        for (const details of await page.$$('summary')) await details.click()
        await accessible(page, `${colorScheme}, ${width} px, after a run`)
        await end()
      }
    }
  },

  async 'the keyboard alone chooses, runs, stops and opens the table'() {
    const { url } = await serve()
    const { page, end } = await open(url)
    const focused = () => page.evaluate(() => document.activeElement.name || document.activeElement.id || document.activeElement.textContent)
    const reach = async (name) => {
      for (let tabs = 0; tabs < 80 && await focused() !== name; tabs += 1) await page.keyboard.press('Tab')
      assert.equal(await focused(), name)
    }
    await reach('limit')
    await page.keyboard.press('Control+A')
    await page.keyboard.type('4')
    await reach('pattern')
    await page.keyboard.press('ArrowUp')
    assert.equal(await page.inputValue('[name=pattern]'), 'steady')
    await reach('seconds')
    await page.keyboard.press('Control+A')
    await page.keyboard.type('60')
    await reach('run')
    await page.keyboard.press('Enter')
    await page.waitForFunction(() => document.querySelector('#status').textContent.startsWith('Running'))
    await page.keyboard.press('Enter')
    await settled(page)
    assert.equal(await status(page), 'The run was stopped.')
    await reach('All numbers, as a table')
    await page.keyboard.press('Enter')
    assert.ok(await page.isVisible('#rows'))
    await end()
  },

  async 'bad input shows its error and marks its field'() {
    const { url } = await serve()
    const { page, end } = await open(url, {}, ['422'])
    const cases = { limit: ['0', '-1', '1.5', '1e300', '', '2000000000000'], window: ['0', '-5', '1e18'], burst: ['0'], queue: ['1e6'],
      cost: ['0', '-1'], rate: ['0', '1000000', '2.5'], seconds: ['0', '61'], clients: ['0', '17', '1e9'], obeying: ['13', '-1'], work: ['99999'] }
    for (const [name, values] of Object.entries(cases)) {
      const good = await page.inputValue(`[name=${name}]`)
      for (const value of values) {
        await fill(page, { [name]: value })
        await page.click('#run')
        await page.waitForFunction((name) => document.querySelector(`[name=${name}]`).ariaInvalid === 'true', name)
        await settled(page)
        assert.match(await page.textContent('#error'), new RegExp(name), `${name} ${value}`)
      }
      await fill(page, { [name]: good })
      await page.waitForFunction(() => document.querySelector('#error').textContent === '')
    }
    await fill(page, { rate: 200, seconds: 60 })
    await page.click('#run')
    await page.waitForFunction(() => document.querySelector('#error').textContent.includes('at most 2000'))
    await end()
    for (const body of ['', '{', '[]', '{"limit":1}', JSON.stringify({ lanes: Array(1000).fill('gcra') }), 'x'.repeat(1 << 20)]) {
      for (const path of ['texts', 'runs']) {
        const response = await fetch(url + path, { method: 'POST', body, headers: { 'content-type': 'application/json' } })
        assert.equal(response.status, 422, body.slice(0, 40))
        assert.ok((await response.json()).error)
      }
    }
  },

  async 'two tabs at once are apart, and a fifth run is one too many'() {
    const { url } = await serve()
    const tabs = await Promise.all([open(url), open(url)])
    const limits = [3, 9]
    await Promise.all(tabs.map(({ page }, index) => fill(page, { ...SHORT, pattern: 'steady', window: 5000, queue: 0, limit: limits[index] })))
    await Promise.all(tabs.map(({ page }) => page.click('#run')))
    for (const [index, { page, end }] of tabs.entries()) {
      // The window may have an edge in the run.
      const rows = await counted(page)
      assert.equal(rows['Sliding log'].allowed, limits[index])
      await end()
    }
    const setup = { lanes: ['gcra'], limit: 5, window: 1000, burst: 5, queue: 0, cost: 1, pattern: 'steady', rate: 1, seconds: 60, clients: 1, obeying: 0, work: 0 }
    const post = (signal) => fetch(url + 'runs', { method: 'POST', body: JSON.stringify(setup), headers: { 'content-type': 'application/json' }, signal })
    const stop = new AbortController()
    const runs = await Promise.all([1, 2, 3, 4].map(() => post(stop.signal)))
    assert.deepEqual(runs.map((run) => run.status), [200, 200, 200, 200])
    const { page, end } = await open(url, {}, ['503'])
    await page.click('#run')
    await page.waitForFunction(() => document.querySelector('#error').textContent.includes('4 runs are under way'))
    stop.abort()
    // A run ends with its connection.
    for (let tries = 0; (await post(AbortSignal.timeout(PATIENCE))).status === 503; tries += 1) {
      assert.ok(tries < 100, 'stopped runs make room')
      await new Promise((resolve) => setTimeout(resolve, 50))
    }
    await end()
  },

  async 'a server that stalls or dies during a run is said to'() {
    const { child, url } = await serve()
    const { page, end } = await open(url, {}, ['ERR_'])
    await fill(page, { seconds: 60, rate: 5 })
    await page.click('#run')
    await page.waitForFunction(() => Number(document.querySelector('.counts .allowed').textContent) > 0)
    child.kill('SIGSTOP')
    await page.waitForFunction(() => document.querySelector('#status').textContent.startsWith('No news from the server'))
    child.kill('SIGCONT')
    await page.waitForFunction(() => document.querySelector('#status').textContent.startsWith('Running'))
    child.kill('SIGKILL')
    await page.waitForFunction(() => document.querySelector('#error').textContent.includes('The server is gone'))
    await settled(page)
    assert.equal(await status(page), 'The run has failed.')
    await page.click('#run')
    await settled(page)
    assert.match(await page.textContent('#error'), /The server is gone/)
    await end()
  },

  async 'a Redis that dies during a run leaves the decisions to a local store, and the page counts them'() {
    const address = await redis()
    const store = processes.at(-1)
    const { url } = await serve('--redis', address)
    const { page, end } = await open(url)
    await fill(page, { ...SHORT, pattern: 'steady' })
    await page.click('#run')
    await page.waitForFunction(() => Number(document.querySelector('.counts .allowed').textContent) > 0)
    store.kill('SIGKILL')
    const rows = await counted(page)
    assert.ok(rows['Token bucket']['by fallback'] > 0)
    assert.ok(rows['Token bucket']['by fallback'] < rows['Token bucket'].allowed + rows['Token bucket'].denied)
    await end()
  },

  async 'a slow network draws late and counts the same'() {
    const { url } = await serve()
    const { page, end } = await open(url)
    const network = await page.context().newCDPSession(page)
    await network.send('Network.emulateNetworkConditions', { offline: false, latency: 400, downloadThroughput: 40_000, uploadThroughput: 40_000 })
    await fill(page, SHORT)
    await page.click('#run')
    await counted(page)
    await end()
  },
}

async function picture(file) {
  const { url } = await serve()
  const { page, end } = await open(url, { viewport: { width: 1240, height: 560 } })
  await page.click('#presets button:text("edge")')
  await counted(page)
  await page.screenshot({ path: file })
  await end()
}

try {
  if (process.argv[2] === '--picture') {
    await picture(process.argv[3])
  } else {
    for (const [name, test] of Object.entries(tests).filter(([name]) => name.includes(process.argv[2] ?? ''))) {
      const began = performance.now()
      await test()
      console.log(`ok: ${name} (${((performance.now() - began) / 1000).toFixed(1)} s)`)
    }
  }
} finally {
  await browser.close()
  processes.forEach((child) => child.kill('SIGKILL'))
}
